"""The case that measures fits of other packages: it runs, says what is missing, and the document shows its file."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from benchmarks import geostat_peers as case
from benchmarks.running import RESULTS, main

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.host


def test_packages_that_are_not_there_are_said(monkeypatch, capsys):
    def nothing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", nothing)
    with pytest.raises(ValueError, match="GPBoost, GPyTorch-exact cannot be measured: pip install gpboost gpytorch"):
        case.installed(["ooc_chol", "GPBoost", "GPyTorch-exact"], must=True)
    assert case.installed(["ooc_chol", "GPBoost"], must=False) == (["ooc_chol"], ["GPBoost"])
    assert capsys.readouterr().out == "left out, because not installed: GPBoost\n"


@pytest.mark.usefixtures("processes")
def test_every_estimate_is_judged_alike(data_dir, tmp_path, one_blas_thread):
    words = ["--data", str(data_dir), "--cases", "meuse", "--peers", "ooc_chol", "scikit-learn", "--repeats", "2"]
    assert main(["geostat_peers", *words, "--threads", "1", "--output", str(tmp_path)]) == 0
    content = json.loads((tmp_path / "peers.json").read_text(encoding="utf-8"))
    ours, theirs = content["runs"]
    assert [len(run[key]) for run in (ours, theirs) for key in ("seconds", "cpu_seconds", "others_cores")] == [2] * 6
    assert set(content["machine"]) >= {"cpu", "cores", "numpy", "scikit-learn"} and content["left_out"] == []
    # the same model, but with the mean of the values in place of the most likely one
    assert 0 <= ours["loglik"] - theirs["loglik"] < 0.01
    assert theirs["rmse"] == pytest.approx(ours["rmse"], rel=0.02) and theirs["crps"] == pytest.approx(ours["crps"], rel=0.02)
    assert ours["n"] == 140 and ours["held_out"] == 15
    # the estimates are in the units of the data
    assert 300 < ours["estimates"]["range"] < 500 and ours["estimates"]["range"] == pytest.approx(
        theirs["estimates"]["range"], rel=0.05
    )


def test_the_document_shows_the_file():
    content = json.loads((RESULTS / "geostat/peers.json").read_text(encoding="utf-8"))
    assert case.table(content) in (ROOT / "docs/measurements.md").read_text(encoding="utf-8")
    assert {"case", "commit", "date", "machine", "threads", "note", "runs"} <= set(content)
