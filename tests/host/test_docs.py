"""The pages of the documentation run as they stand, and print what they show."""

from __future__ import annotations

import pytest

from tests.documents import ROOT, blocks, is_shown, parse, read, run_document

DOCS = ROOT / "docs"


def test_the_tutorial_runs_and_prints_what_it_shows(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "cache"))
    page = DOCS / "tutorial.md"
    run_document(read(page), page, capsys)
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "covariance.npy", "covariance.factor", "run.pftrace"}


@pytest.mark.parametrize("name", ["how-it-works", "traces", "residues", "mixed-precision", "ablation", "measurements"])
def test_a_page_runs_and_prints_what_it_shows(one_blas_thread, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = DOCS / f"{name}.md"
    run_document(read(page), page, capsys)
