"""The README runs as it stands, one block after the other in one folder, as a reader would try it, and shows what files say."""

from __future__ import annotations

import json
import re
from statistics import median

import ooc_chol as oc
from tests.documents import ROOT, pages, read, run_document

README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"


def test_the_readme_runs_and_prints_what_it_shows(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "rates"))
    run_document(read(README), README, capsys)
    assert oc.Trace.load("run.pftrace").predicted, "the trace that the README makes has its prediction beside it"
    assert {path.name for path in tmp_path.iterdir()} == {
        "rates", "covariance.npy", "covariance.factor", "run.pftrace", "field.csv", "model.json", "map.csv", "map.png",
        "graph.oocsr",
    }  # fmt: skip


def result(name: str) -> dict:
    """A result file that the README links to."""
    assert f"](benchmarks/results/{name}.json)" in read(README)
    return json.loads(read(RESULTS / f"{name}.json"))


def test_figures_of_the_bullets_are_those_of_the_files():
    text = read(README)
    largest = result("h200-residue-250000-112g")
    assert f"[factor of {4e-9 * largest['n'] * (largest['n'] + 1):.0f} GB]" in text
    assert f"in {largest['budget_bytes'] / 2**30:.0f} GiB of its memory" in text

    fast = result("h200-residue-131072-32g")
    others = [json.loads(path.read_text()) for path in RESULTS.glob("h200-*.json")]
    best = max(peer["tflops"] for other in others for peer in other["peers"] if peer["name"].startswith("cuSOLVER"))
    whole = fast["n"] ** 3 / 3e12 / median(fast["wall_seconds"])
    assert f"{whole:.0f} TFLOP/s of FP64 out of core on one H200 over the whole call" in text and fast["out_of_core"]
    assert f"[{whole / best:.1f} times]" in text

    drawn = result("h200-native-131072-24g")
    assert f"[{drawn['predicted_seconds']:.1f} seconds]" in text in text
    assert f"which took {median(drawn['seconds']):.1f}, in a call of {median(drawn['wall_seconds']):.1f}." in text
    assert f"may use {drawn['budget_bytes'] / 2**30:.0f} GiB" in text
    assert f"waits for copies {100 * drawn['exposed_copy_share']:.1f} % of the time" in text
    assert f"factor takes {4e-9 * drawn['n'] * (drawn['n'] + 1):.0f} GB" in text

    passes = result("sparse/host-passes-20")
    cold, warm = sorted(
        (each for each in passes["passes"] if each["setting"] == "file:8:DDD"), key=lambda each: not each["is_cold"]
    )
    (scipy,) = (peer for peer in passes["peers"] if peer["columns"] == 8)
    assert f"[{min(scipy['seconds']) / cold['pass_seconds']:.1f} times]" in text
    assert f"at {min(scipy['seconds']) / warm['pass_seconds']:.1f} times where" in text
    assert f"{passes['entries'] / 1e6:.0f} million entries" in text

    lines = result("eigen/h200-25")["lines"]
    (ours,) = (line for line in lines if line["what"] == "ours" and (line["k"], line["precision"]) == (24, "FDF"))
    assert f"[{min(ours['seconds']):.1f} seconds]" in text
    assert f"{ours['entries'] / 1e9:.0f}" == "1" and "24 pairs of a graph of a billion entries" in text

    first, *mixed = (run for run in result("paper/host-mixed-8192")["runs"] if run["correlation"] == "weak")
    shares = [run["bytes"]["executed"]["write"] / first["bytes"]["executed"]["write"] for run in mixed]
    assert f"[{100 * min(shares):.0f} %]" in text

    for name, unit in (("modis-half-h200", " seconds"), ("modis-1e-5-h200", ""), ("modis-vecchia-host", " seconds")):
        content = result(f"geostat/{name}")
        (trial,) = (each for each in content["models"] if each["model"] == "half-constant")
        assert f"[{trial['seconds']['all']:.0f}{unit}](benchmarks/results/geostat/{name}.json)" in text
        assert f"{trial['n']:,} values" in text and f"{trial['held_out']:,} others" in text
    assert content["machine"]["cores"] == 2 and "on two cores" in text


def test_figures_of_gradients_are_those_of_the_file():
    text, found = read(README), result("diff/h200-products")["measured"]
    ours, theirs = (1e3 * median(found[f"{name}forward and backward"]["seconds"]) for name in ("", "torch.sparse.mm "))
    assert f"with {found['pattern']['entries'] / 1e6:.0f} million entries take [{ours:.2f} ms]" in text
    assert f"`torch.sparse.mm` {theirs:.1f} (" in text


def test_the_readme_is_short():
    """A front page: what it does, on what, how to begin. Everything measured is in docs/measurements.md."""
    text = read(README)
    assert len(text.splitlines()) <= 140
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) <= 2 + 6 and max(line.count(" | ") for line in rows) <= 4


def test_links_of_documents_lead_somewhere():
    for page in pages():
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", read(page)):
            assert (page.parent / link).exists(), f"{page.relative_to(ROOT)} links to {link}, which is not there"
