"""The scripts that measure partitions and segments: what they count, how they fail, and that the page shows their file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import partition_parts, partitions, segments
from benchmarks.running import RESULTS, main, replaced

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]


@pytest.fixture
def ladder(tmp_path):
    """A ladder of 2 x 30 vertices in METIS's format, whose best cut is 2."""
    n, lines = 60, []
    for vertex in range(n):
        near = [vertex ^ 1, *(other for other in (vertex - 2, vertex + 2) if 0 <= other < n)]
        lines.append(" ".join(str(other + 1) for other in sorted(near)))
    (tmp_path / "ladder.graph").write_text(f"{n} {30 + 2 * 29}\n" + "\n".join(lines) + "\n")
    return tmp_path / "ladder.graph"


def test_every_partitioner_is_installed_where_tests_are_run_with_them():
    assert {"ooc_chol", "scikit-learn arpack"} <= set(partitions.installed()) <= set(partitions.PARTITIONERS)


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("name", partitions.installed())
def test_a_partitioner_cuts_a_ladder(ladder, name):
    found = partitions.one(str(ladder), name, 1, 1, 0.0)
    assert (found["n"], found["edges"]) == (60, 88) and sum(found["sizes"]) == 60
    assert 2 <= found["cut"] <= 4 and 0 <= found["imbalance"] < 0.2 and found["seconds"] > 0


@pytest.mark.usefixtures("processes")
def test_a_run_in_a_process_of_its_own_ends_with_its_limit(ladder):
    words = ["partitions", str(ladder.parent), "--partitioners", "ooc_chol", "--seeds", "4", "--threads", "1"]
    for limit, name in (("60", "done"), ("0.01", "not")):
        assert main([*words, "--limit", limit, "--name", name, "--output", str(ladder.parent)]) == 0
        (run,) = json.loads((ladder.parent / f"{name}.json").read_text())["graphs"]["ladder"]["ooc_chol"]
        assert run["seed"] == 4 and (run.get("cut") == 2 if name == "done" else run["failed"] == "not done in 0.01 s")


def run(cut, sizes=(50, 50), seconds=1.0):
    imbalance = 2 * max(sizes) / sum(sizes) - 1
    return {"cut": cut, "sizes": list(sizes), "imbalance": imbalance, "seconds": seconds, "processor_seconds": 2.0, "edges": 300}


def test_tables_have_medians_ratios_and_what_failed():
    graphs = {
        "a": {"ooc_chol": [run(8), run(9), run(30)], "METIS": [run(10)], "KaHIP eco": [run(9, (60, 40))]},
        "b": {"ooc_chol": [run(40)], "METIS": [run(10)], "KaHIP eco": [{"failed": "not done in 5 s"}]},
    }
    made = partitions.tables(graphs)
    assert (
        "| a | 300 | 9 | 10 | 9 (20.0 %) |\n| b | 300 | 40 | 10 | - |\n| ratio to METIS |  | 1.897 | 1.000 |  |" in made["cuts"]
    )
    assert "| seconds, median |  | 2 | 2 | 2 |" in made["cuts"]


def test_graphs_that_were_measured_since_have_no_row_and_count():
    rows = {"ooc_chol": [run(8)], "METIS": [run(10)]}
    made = partitions.tables({"a": rows, "add20": {**rows, "ooc_chol": [run(16)]}})["cuts"]
    assert "| add20" not in made and f"| ratio to METIS |  | {(0.8 * 1.6) ** 0.5:.3f} | 1.000 |" in made


def test_the_table_of_many_parts_is_beside_the_lesser_cut_of_metis():
    def rows(*cuts):
        return {name: [run(cut) for cut in each] for name, each in zip(("ooc_chol", "METIS", "METIS k-way"), cuts, strict=True)}

    graphs = {"a": {"2": rows([9, 8, 30], [10], [12])}, "b": {"2": rows([4], [9], [4])}}
    made = partition_parts.table({"parts": [2], "graphs": graphs})
    assert "| ooc_chol | 0.949 | 1.000 | 2 | 2 |\n| METIS | 1.500 | 2.250 | 2 | 2 |" in made


def test_the_page_shows_the_file():
    page = (ROOT / "docs/spectral.md").read_text(encoding="utf-8")
    content = json.loads((RESULTS / "spectral/host-walshaw.json").read_text(encoding="utf-8"))
    for name, table in partitions.tables(content["graphs"]).items():
        assert replaced(page, f"partitions {name}", table) == page
    many = json.loads((RESULTS / "spectral/host-parts.json").read_text(encoding="utf-8"))
    assert replaced(page, "parts", partition_parts.table(many)) == page
    for rows in content["graphs"].values():
        assert all(("failed" in each) != ("cut" in each) for runs in rows.values() for each in runs)


def test_segments_are_measured_beside_others():
    image = segments.image_of("coins", "24x16")
    assert image.shape == (16, 24) and 0 <= image.min() < image.max() <= 255
    beside = segments.scipys(image)
    first, whole = (segments.ours(image, "host:0", "auto", 0.5, is_whole=each) for each in (False, True))
    assert beside["n_entries"] == first["report"]["n_entries"] and beside["eigenvalues"][-1] == pytest.approx(0, abs=1e-9)
    assert first["n_segments"] == 2 <= whole["n_segments"] and first["ncut"] < 2
    assert np.sum(segments.sklearns(image, "arpack")["sizes"]) == image.size
    assert segments.table({"coins 24x16": {"first": {**first, "seconds": 0.5}, "whole": whole}}).count("\n") == 2
