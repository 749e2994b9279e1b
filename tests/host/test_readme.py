"""The README runs as it stands, one block after the other in one folder, as a reader would try it, and shows what files say."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

from benchmarks import quote
from benchmarks.quote import quotes
from benchmarks.running import main, parsed, replaced
from tests.documents import ROOT, pages, read, run_document

README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"


@pytest.mark.commit
@pytest.mark.package("torch")
@pytest.mark.usefixtures("foreign")
def test_the_readme_runs_and_prints_what_it_shows(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "rates"))
    run_document(read(README), README, capsys)
    assert {path.name for path in tmp_path.iterdir()} - {"rates"} == {
        "A.npy", "L", "field.csv", "model.json", "map.csv", "map.png",
    }  # fmt: skip


def result(name: str) -> dict:
    """A result file that the README links to."""
    assert f"](benchmarks/results/{name}.json)" in read(README)
    return json.loads(read(RESULTS / f"{name}.json"))


def test_figures_of_the_readme_and_the_documents_are_those_of_the_files(capsys):
    assert main(["quote", "--check"]) == 0, capsys.readouterr().out


def test_every_result_that_the_readme_links_to_is_quoted():
    text = read(README)
    quoted = [span for each in quotes() if each.page == "README.md" for span in [each.pattern().search(text).span()]]
    links = list(re.finditer(r"\]\(benchmarks/results/", text))
    assert len(links) > 10
    assert [link for link in links if not any(start <= link.start() < end for start, end in quoted)] == []


def test_what_the_readme_says_of_these_figures_is_so():
    fast = result("h200-residue-131072-32g")
    assert fast["out_of_core"] and fast["budget_bytes"] / (4 * fast["n"] * (fast["n"] + 1)) == pytest.approx(0.5, rel=0.01)
    for name in ("geostat/modis-vecchia-host", "geostat/modis-peers-host"):
        assert result(name)["machine"]["cores"] == 2
    assert f"{result('eigen/h200-25')['lines'][-1]['entries'] / 1e9:.0f}" == "1"
    assert result("spectral/host-walshaw")["balance"] == 0.0


@pytest.mark.parametrize("command", quote.TABLES[1:])  # the first has tests of its own
def test_tables_between_marks_are_those_of_the_files(command):
    case, options = parsed(command.split())
    text = read(ROOT / options.update)
    for mark, table in case.get("documented")(options).items():
        assert text == replaced(text, mark, table), f"run: python -m benchmarks {command}"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page with a quote of a figure that its file has not."""
    monkeypatch.setattr(quote, "ROOT", tmp_path)
    monkeypatch.setattr(quote, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(quote, "TABLES", ())
    made = [quote.Quote("a.md", "It takes [{} s](results/b.json), a peer {}.", ("1.5", "2e-7"))]
    monkeypatch.setattr(quote, "QUOTED", (lambda: iter(made),))
    monkeypatch.setattr(quote, "link_from", lambda page: "results")
    (tmp_path / "a.md").write_text("First.\nIt takes [99 s](results/b.json), a\npeer 2e-7. It takes 1.\n", encoding="utf-8")
    return tmp_path / "a.md"


def test_a_figure_that_its_file_has_not_is_named_and_then_written(page, capsys):
    assert main(["quote", "--check"]) == 1
    assert capsys.readouterr().out.startswith("a.md:2: It takes [1.5 s](results/b.json), a\n")
    assert "99" in read(page) and main(["quote"]) == 0
    assert read(page) == "First.\nIt takes [1.5 s](results/b.json), a\npeer 2e-7. It takes 1.\n"
    assert main(["quote", "--check"]) == 0


@pytest.mark.parametrize("times", [0, 2])
def test_a_quote_that_a_page_has_not_once_is_refused(page, times, capsys):
    page.write_text(times * read(page), encoding="utf-8")
    assert main(["quote", "--check"]) == 2
    assert f"a.md has the piece {times} times, not once: It takes" in capsys.readouterr().err


def test_the_table_of_extras_has_all_that_a_user_installs():
    extras = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    rows = read(README).split("| extra | brings | for |")[1].split("\n\n")[0]
    assert set(re.findall(r"`([\w-]+)`", rows)) == set(extras) - {"dev", "docs", "peers"}


def test_the_readme_is_short():
    """A front page: what it is, what to type, what it gives. Everything measured is in docs/measurements.md."""
    lines = read(README).splitlines()
    assert len(lines) <= 120 and max(map(len, lines)) <= 120


def test_links_of_documents_lead_somewhere():
    for page in pages():
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", read(page)):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)} links to {link}, which is not there"
