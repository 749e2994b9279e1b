"""The frame of the benchmarks: every case is listed and takes its options, and a result has its head and its file."""

from __future__ import annotations

import doctest
import json
from itertools import count

import pytest

from benchmarks import cluster_model, random_graphs, several_gpus, synth
from benchmarks.paper import likelihoods
from benchmarks.running import apart, cases, main, parsed, replaced, updated
from ooc_chol.tracing import StreamRole, TraceRecord

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


def test_a_result_that_is_there_is_replaced_only_where_that_is_asked_for(tmp_path, capsys, monkeypatch):
    """Refused before anything is measured, also under a name of the case's own; lines of one run replace each other."""
    words = ["random_graphs", "--scales", "5", "6", "--repeats", "1", "--name", "mine", "--output", str(tmp_path)]
    assert main(words) == 0
    before = (tmp_path / "mine.json").read_bytes()
    assert len(json.loads(before)["lines"]) > 1
    monkeypatch.setattr(random_graphs, "run", lambda options: pytest.fail("it was measured"))
    assert main(words) == 2 and "mine.json is there already; give another --name, or --force" in capsys.readouterr().err
    monkeypatch.setattr(random_graphs, "run", lambda options: {"lines": "new"})
    assert (tmp_path / "mine.json").read_bytes() == before
    assert main([*words, "--force"]) == 0 and json.loads((tmp_path / "mine.json").read_bytes())["lines"] == "new"


def test_a_strangers_file_is_not_replaced_and_nothing_is_measured_for_it(tmp_path, capsys, monkeypatch):
    (tmp_path / "mine.json").write_text('{"n": 5}\n', encoding="utf-8")
    monkeypatch.setattr(random_graphs, "run", lambda options: pytest.fail("it was measured"))
    assert main(["random_graphs", "--name", "mine", "--output", str(tmp_path), "--force"]) == 2
    assert "mine.json exists already and is no result" in capsys.readouterr().err
    assert (tmp_path / "mine.json").read_bytes() == b'{"n": 5}\n'


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("certified_families", "families"),
        ("cluster_model", "model"),
        ("cluster_model_machines", "machines"),
        ("eigen_precision --name host", "precision-host"),
        ("geostat_coverage", "coverage"),
        ("geostat_fits jacksboro", "jacksboro"),
        ("geostat_modis --data .", "modis-vecchia-host"),
        ("host_fp64", "host-fp64-file"),
        ("matrix_types --types float32", "types-float32-native-host"),
        ("paper_kl --devices host:0", "host-paper-kl"),
        ("planning", "planning"),
        ("sparse_order", "order-25"),
        ("sparse_products", "host-products-20"),
    ],
)
def test_names_of_cases_are_guarded(words, file, tmp_path, capsys):
    (tmp_path / f"{file}.json").write_text("kept")
    assert main([*words.split(), "--output", str(tmp_path)]) == 2
    assert f"{file}.json is there already" in capsys.readouterr().err
    assert [each.read_text() for each in tmp_path.iterdir()] == ["kept"]


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


def test_calls_on_several_devices_have_the_bits_of_one(tmp_path, capsys, monkeypatch):
    """At one key; what differs in the key is said, and other bits of the same key end with status 1, all cases run."""
    words = ["several_gpus", "--devices", "host:0,host:1", "--n", "96", "--tile-size", "32", "--output", str(tmp_path)]
    assert main([*words, "--cases", "default", "eigsh", "--trace", "--name", "mine"]) == 0
    lines = json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))["lines"]
    assert [(each["measured"], each["count"]) for each in lines] == [(name, n) for name in ("default", "eigsh") for n in (1, 2)]
    assert all(each["same_bits"] and not each["other_key"] and "whole run" in each["trace"] for each in lines[:2])
    assert all(each["causes"]["products"] > 0.0 <= min(each["causes"].values()) for each in lines)
    assert all(len(each["walls"]) == 4 and each["seconds"]["total"] <= each["walls"][-1] for each in lines)
    first, other = ({**lines[0], "bits": bits} for bits in "ab")
    assert not several_gpus.beside(other, first)["is_right"]
    told = several_gpus.beside({**other, "key": first["key"] | {"nb": 48}}, first)
    assert told["other_key"] == {"nb": [32, 48]} and told["is_right"] and not told["same_bits"]
    slow, fast = {**first, "walls": [9.0, 8.0, 4.0, 3.0]}, {**first, "walls": [9.0, 1.0, 2.0, 5.0]}
    assert several_gpus.beside(fast, slow)["first_over_this"] == 2.0
    numbers = count()
    monkeypatch.setattr(several_gpus, "digest", lambda *arrays: str(next(numbers)))
    with pytest.raises(SystemExit, match=r"other bits of the same key: eigsh on 2"):
        main([*words, "--cases", "eigsh"])
    capsys.readouterr()


def test_seconds_of_a_run_have_causes():
    """On two devices, in tens of nanoseconds: 2 for the other one, 1 for a copy, 3 late, and over 1 before the other."""

    def ran(device, step, stream, kind, span, *after):
        facts = {"label": "x", "block": "x", "fmt": "fp64", "nbytes": 0, "link": "", "flops": 0, "resident_bytes": 0}
        times = {"start_ns": 10 * span[0], "end_ns": 10 * span[1], "after": after, "role": StreamRole(0, stream == "compute")}
        return TraceRecord(step=step, device=device, stream=stream, kind=kind, **facts, **times)

    found = several_gpus.causes(
        [
            ran("cuda:0", 0, "compute", "compute", (0, 4)),
            ran("cuda:0", 1, "copy-in", "fetch", (1, 5)),
            ran("cuda:0", 2, "compute", "compute", (5, 8), ("cuda:0", 1)),
            ran("cuda:0", 3, "compute", "compute", (11, 12)),
            ran("cuda:1", 0, "compute", "compute", (0, 6)),
            ran("cuda:1", 1, "compute", "compute", (8, 13), ("cuda:0", 2)),
        ]
    )
    wanted = {"products": 19, "another GPU": 2, "links": 1, "kernels of other streams": 0, "enqueued late": 3}
    assert found == pytest.approx({name: 5e-9 * tens for name, tens in (wanted | {"over before others": 1}).items()})


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


def test_machines_that_cannot_hold_l_are_planned_with_a_zarr_group():
    one, eight, held = (cluster_model.machines_point(n, count, 25e9) for n, count in ((10**6, 1), (10**6, 8), (250_000, 1)))
    assert one["store"] == "zarr" and one["written_bytes"] > 4e12 and one["network_bytes"] == 0
    assert eight["store"] == held["store"] == "memory" and held["network_bytes"] == 0 < eight["network_bytes"]
    assert eight["seconds"] < one["seconds"] and eight["efficiency"] < one["efficiency"]
    assert held["efficiency"] == pytest.approx(250_000**3 / 3 / 8e14 / held["seconds"])
