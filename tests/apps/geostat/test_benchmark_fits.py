"""The case that fits whole data sets: it runs, and the document shows its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import geostat_fits
from benchmarks.running import RESULTS, main

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.host


def test_a_small_part_of_the_terrain_is_fitted_and_predicted(tmp_path, one_blas_thread):
    words = ["jacksboro", "--n", "150", "--held-out", "0.2", "--smoothness", "1.5", "--devices", "host:0"]
    assert main(["geostat_fits", *words, "--output", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "jacksboro.json").read_text(encoding="utf-8"))
    assert content["n"] == 120 and content["held_out"]["n"] == 30
    assert {"range", "variance", "nugget"} <= set(content["inference"]["estimates"])
    assert content["factorization"]["devices"] == ["host:0"] and content["dgemm_tflops"][0] > 0


def test_data_that_are_not_there_are_asked_for(capsys):
    assert main(["geostat_fits", "kaust"]) == 2
    assert "--data FOLDER is needed" in capsys.readouterr().err


def test_the_document_shows_the_files():
    document = ROOT / "docs/measurements.md"
    made = geostat_fits.table(RESULTS / "geostat", "../benchmarks/results/geostat")
    assert made in document.read_text(encoding="utf-8"), "run: python -m benchmarks geostat_fits --update docs/measurements.md"
