"""The script that fits whole data sets: it runs, and the document shows its files."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks/geostat_fits.py"

pytestmark = pytest.mark.host


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    yield importlib.import_module("geostat_fits")
    sys.modules.pop("geostat_fits")


def test_a_small_part_of_the_terrain_is_fitted_and_predicted(script, tmp_path, monkeypatch, one_blas_thread):
    words = ["jacksboro", "--n", "150", "--held-out", "0.2", "--smoothness", "1.5", "--devices", "host:0"]
    monkeypatch.setattr("sys.argv", [str(SCRIPT), *words, "--output", str(tmp_path)])
    script.main()
    content = json.loads((tmp_path / "jacksboro.json").read_text(encoding="utf-8"))
    assert content["n"] == 120 and content["held_out"]["n"] == 30
    assert {"range", "variance", "nugget"} <= set(content["inference"]["estimates"])
    assert content["factorization"]["devices"] == ["host:0"] and content["dgemm_tflops"][0] > 0


def test_data_that_are_not_there_are_asked_for(script, monkeypatch):
    monkeypatch.setattr("sys.argv", [str(SCRIPT), "kaust"])
    with pytest.raises(SystemExit, match="--data FOLDER is needed"):
        script.main()


def test_the_document_shows_the_files(script):
    document = ROOT / "docs/geostat.md"
    made = script.table(script.RESULTS, "../benchmarks/results/geostat")
    assert made in document.read_text(encoding="utf-8"), f"run: python {SCRIPT.relative_to(ROOT)} --update docs/geostat.md"
