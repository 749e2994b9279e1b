"""The script that measures fits of other packages: it runs, says what is missing, and the document shows its file."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks/geostat_peers.py"

pytestmark = pytest.mark.host


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    yield importlib.import_module("geostat_peers")
    for name in ("geostat_peers", "geostat_peers_fits"):
        sys.modules.pop(name, None)


def test_packages_that_are_not_there_are_said(script, monkeypatch, capsys):
    def nothing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", nothing)
    with pytest.raises(SystemExit, match="GPBoost, GPyTorch-exact cannot be measured: pip install gpboost gpytorch"):
        script.installed(["ooc_chol", "GPBoost", "GPyTorch-exact"], must=True)
    assert script.installed(["ooc_chol", "GPBoost"], must=False) == (["ooc_chol"], ["GPBoost"])
    assert capsys.readouterr().out == "left out, because not installed: GPBoost\n"


@pytest.mark.usefixtures("processes")
def test_every_estimate_is_judged_alike(script, data_dir, tmp_path, monkeypatch, one_blas_thread):
    out = tmp_path / "peers.json"
    words = ["--data", str(data_dir), "--cases", "meuse", "--peers", "ooc_chol", "scikit-learn", "--repeats", "2"]
    monkeypatch.setattr("sys.argv", [str(SCRIPT), *words, "--threads", "1", "--output", str(out)])
    script.main()
    content = json.loads(out.read_text(encoding="utf-8"))
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


def test_the_document_shows_the_file(script):
    content = json.loads(script.RESULT.read_text(encoding="utf-8"))
    assert script.table(content) in (ROOT / "docs/geostat.md").read_text(encoding="utf-8")
    assert {"case", "commit", "date", "machine", "threads", "note", "runs"} <= set(content)
