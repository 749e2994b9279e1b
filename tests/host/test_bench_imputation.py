"""``ooc-chol bench imputation`` on the host: errors and seconds in a result file, and arguments that make no sense."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.inside.bench import edges_of, errors_of
from tests.inside.cli import main

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")


@pytest.fixture
def ring(tmp_path):
    """A file of the edges of a ring of 24 vertices with chords, one loop, one edge both ways."""
    lines = [f"{i} {(i + step) % 24}" for i in range(24) for step in (1, 5)] + ["3 3", "1 0"]
    path = tmp_path / "ring.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_share_is_measured_and_written(ring, tmp_path, capsys):
    words = [
        "--case",
        "ring",
        "--edges",
        str(ring),
        "--size",
        "24x6x5",
        "--rank",
        "1",
        "--shares",
        "0.9",
        "0.8",
        "--devices",
        "host:0",
    ]
    assert main(["bench", "imputation", *words, "--output", str(tmp_path / "results")]) == 0
    found = json.loads((tmp_path / "results" / "ring.json").read_text(encoding="utf-8"))
    few, more = found["runs"]
    assert (found["graph"], found["shape"], found["rank"], found["paper_seconds"]) == ("ring.txt", [24, 6, 5], 1, None)
    assert (few["missing"], more["missing"], "paper_error" in more) == (2, 5, False)
    assert few["squared_error"] == pytest.approx(few["error"] ** 2) and few["error_of_the_rest"] <= few["error"] < 1
    assert few["numpy_svd_seconds_a_step"] > 0 and few["seconds_a_step"] <= few["seconds"]
    assert "0.9 observed: error" in capsys.readouterr().out


def test_edges_are_symmetric_ones_without_loops(ring):
    graph = edges_of(ring)
    assert graph.nnz == 2 * 48 and set(graph.data) == {1.0} and not graph.diagonal().any()
    assert (graph != graph.T).nnz == 0


def test_errors_are_told_by_where_they_come_from():
    x = np.ones((4, 2, 2))
    found = x.copy()
    found[3] += 0.5
    told = errors_of(found, x, np.array([True, True, True, False]), np.eye(4))
    assert told["error"] == pytest.approx(0.25) and told["squared_error"] == pytest.approx(0.0625)
    assert (told["off"], told["missing"], told["error_of_the_rest"], told["hidden_eigenvectors"]) == (1, 1, 0.0, 1)


MISTAKES = {
    "a share above one": (["--shares", "1.5"], "--shares 1.5: a share of slices that are observed is above 0 and below 1"),
    "another number of slices": (["--size", "20x6x5"], "--size has 20 slices, but"),
    "a peer that is not there": (["--peers", "fancyimpute"], "--peers fancyimpute: it is not installed"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_makes_no_sense_is_refused_before_anything_runs(ring, tmp_path, capsys, name):
    words, text = MISTAKES[name]
    assert main(["bench", "imputation", "--case", "x", "--edges", str(ring), *words, "--output", str(tmp_path / "none")]) == 2
    assert text in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_a_size_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "imputation", "--case", "x", "--size", "12x3"])
    assert "'12x3' is no shape" in capsys.readouterr().err
