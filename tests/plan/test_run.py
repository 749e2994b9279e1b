"""The runner deals every file out once, names what failed or never ran, and ends with the status of that."""

from __future__ import annotations

import json

import pytest

from tests import run
from tests.groups import CLUSTER_FILES, SERIAL_FILES

FILES = run.files_in(["ooc_chol", "tests"])
PASSED = {
    "outcomes": {"passed": 3, "deselected": 1},
    "deselected": {"--thorough": 1},
    "left_out": {},
    "seconds": {"tests/a.py": 9.0},
    "cases": {},
}


@pytest.mark.parametrize("count", [1, 2, 15, 10_000])
def test_every_file_is_in_one_chunk_and_groups_are_together(count):
    seconds = {file: 1.0 + len(file) % 7 for file in FILES[::2]}  # others are unknown
    chunks = run.chunks_of(FILES, seconds, count)
    assert sorted(file for chunk in chunks for file in chunk) == sorted(FILES)
    for group in (SERIAL_FILES, [file for file in FILES if file.startswith(CLUSTER_FILES)]):
        assert sum(not set(chunk).isdisjoint(group) for chunk in chunks) == 1
    costs = [sum(seconds.get(file, run.UNKNOWN) for file in chunk) for chunk in chunks]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([(0, "", PASSED)], 0),
        ([(0, "", PASSED), (5, "", PASSED | {"outcomes": {}})], 0),  # no test of these files is of the tier
        ([(0, "", PASSED), (1, "one failed", PASSED | {"outcomes": {"failed": 1}})], 1),
        ([(0, "", PASSED), (2, "not collected", PASSED | {"outcomes": {"error": 1}})], 1),
        ([(0, "", PASSED), (-9, "killed", None)], 1),
        ([(0, "", PASSED), (0, "said nothing", None)], 1),
        ([(5, "", PASSED | {"outcomes": {}})], 1),  # nothing ran at all
    ],
)
def test_the_status_is_that_of_the_worst_chunk(results, status, monkeypatch, capsys, tmp_path):
    places = [f"tests/plan/test_{name}.py" for name in ("schedule", "plan", "import")[: len(results)]]
    monkeypatch.setattr(run, "chunks_of", lambda files, *_: [[file] for file in files])
    monkeypatch.setattr(run, "run_chunk", lambda chunk, *_: results[places.index(chunk[0])])
    assert run.main(["--tier", "commit", "--processes", "2", "--json", str(tmp_path / "told.json"), *places]) == status
    shown = capsys.readouterr().out
    assert all(output in shown for code, output, facts in results if code not in (0, 5) or facts is None)
    passed = sum(facts["outcomes"].get("passed", 0) for _, _, facts in results if facts is not None)
    assert json.loads((tmp_path / "told.json").read_text())["outcomes"].get("passed", 0) == passed


def test_a_file_far_over_its_seconds_is_named():
    recorded = {"a": 1.0, "b": 1.0, "c": 10.0}
    (line,) = run.over_budget({"a": 4.1, "b": 3.9, "c": 21.0, "new": 99.0}, recorded)
    assert "a took 4.1 s" in line


def test_chunks_have_one_thread_unless_told_otherwise_and_keep_bytecode(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    given = run.environment()
    assert (given["OMP_NUM_THREADS"], given["OPENBLAS_NUM_THREADS"]) == ("3", "1") and "PYTHONDONTWRITEBYTECODE" not in given
