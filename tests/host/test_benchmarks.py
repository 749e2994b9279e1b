"""The frame of the benchmarks: every case is listed and takes its options, and a result has its head and its file."""

from __future__ import annotations

import doctest
import json

import pytest

from benchmarks import synth
from benchmarks.paper import likelihoods
from benchmarks.running import apart, cases, main, parsed, replaced, updated

pytestmark = pytest.mark.host


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("name", cases())
def test_every_case_says_what_it_takes(name, capsys):
    """No package of a GPU is needed for that."""
    with pytest.raises(SystemExit, match=r"^0$"):
        parsed([name, "--help"])
    assert cases()[name].split()[0] in capsys.readouterr().out


def test_all_cases_are_listed(capsys):
    assert main([]) == 0
    told = capsys.readouterr().out
    assert all(f"\n{name} " in told for name in cases()) and len(cases()) > 50


def test_a_result_has_its_head_and_its_file_or_is_printed(tmp_path, capsys):
    words = ["random_graphs", "--scales", "5", "--repeats", "1"]
    assert main([*words, "--name", "mine", "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))
    assert found["case"] == "mine" and {"commit", "date", "machine", "lines"} <= set(found)
    capsys.readouterr()
    assert main([*words, "--output", str(tmp_path)]) == 0
    assert "counts" in capsys.readouterr().out and [each.name for each in tmp_path.iterdir()] == ["mine.json"]


def test_what_a_user_can_mend_is_one_line(capsys):
    assert main(["no-such-case"]) == 2
    assert "there is no case 'no-such-case'" in capsys.readouterr().err
    assert main(["zarr-tiles", "--n", "65"]) == 2
    assert capsys.readouterr().err == "benchmarks: --n 65 is no multiple of 512: all tiles are to be of one shape\n"


@pytest.mark.usefixtures("processes")
def test_a_function_apart_gives_its_data_or_why_it_has_none():
    assert apart(json.loads, '{"a": 1}') == {"a": 1}
    assert "Expecting value" in apart(json.loads, "x")["failed"]
    assert apart(json.loads, "{}", seconds=0.001) == {"failed": "not done in 0.001 s"}
    with pytest.raises(RuntimeError, match="loads ended with 1"):
        apart(json.loads, "x", must=True)


@pytest.mark.parametrize("module", [synth, likelihoods])
def test_examples_of_docstrings_run(module):
    assert doctest.testmod(module).failed == 0


def test_tables_are_put_between_their_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- one -->\n\nold\n\n<!-- end -->\nb\n<!-- two -->\nold\n<!-- /two -->\n", encoding="utf-8")
    assert updated(page, {"one": "new", "two": "newer"}) and not updated(page, {"one": "new\n"})
    assert page.read_text() == "a\n<!-- one -->\n\nnew\n\n<!-- end -->\nb\n<!-- two -->\nnewer\n<!-- /two -->\n"
    with pytest.raises(ValueError, match="0 places"):
        replaced("a page", "one", "new")
