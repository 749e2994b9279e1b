"""The README runs as it stands, one block after the other in one folder, as a reader would try it, and shows what files say."""

from __future__ import annotations

import json
import re
import tomllib
from statistics import median

import pytest

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
        "covariance.npy", "covariance.factor", "field.csv", "model.json", "map.csv", "map.png",
    }  # fmt: skip


def result(name: str) -> dict:
    """A result file that the README links to."""
    assert f"](benchmarks/results/{name}.json)" in read(README)
    return json.loads(read(RESULTS / f"{name}.json"))


def prose() -> str:
    """The README in one line."""
    return " ".join(read(README).split())


def figure(text: str, name: str) -> str:
    """A figure of the README with the link to its file."""
    return f"[{text}](benchmarks/results/{name}.json)"


def line(lines: list[dict], **wanted: object) -> dict:
    """The one line of a result file with these values."""
    (found,) = (each for each in lines if wanted.items() <= each.items())
    return found


def test_figures_of_the_factorization_are_those_of_the_files():
    text, fast = prose(), result("h200-residue-131072-32g")
    assert (
        fast["out_of_core"]
        and f"Order {fast['n']:,} in {fast['budget_bytes'] / 2**30:.0f} GiB of an H200, half of L's bytes" in text
    )
    assert fast["budget_bytes"] / (4 * fast["n"] * (fast["n"] + 1)) == pytest.approx(0.5, rel=0.01)
    assert figure(f"{fast['n'] ** 3 / 3e12 / median(fast['wall_seconds']):.0f} TFLOP/s", "h200-residue-131072-32g") in text
    others = [json.loads(path.read_text()) for path in RESULTS.glob("h200-*.json")]
    best = max(peer["tflops"] for other in others for peer in other["peers"] if peer["name"].startswith("cuSOLVER"))
    assert f"cuSOLVER {best:.0f} with all in memory" in text


def test_figures_of_kriging_are_those_of_the_files():
    text, ours, theirs = prose(), result("geostat/modis-vecchia-host"), result("geostat/modis-peers-host")
    assert ours["machine"]["cores"] == theirs["machine"]["cores"] == 2 and "takes two cores" in text
    found = line(ours["models"], model="half-constant")
    assert figure(f"{found['seconds']['all']:.0f} s", "geostat/modis-vecchia-host") in text
    assert figure(f"{theirs['peers']['GPBoost']['seconds']['all']:.0f} s", "geostat/modis-peers-host") in text
    assert f"{found['n']:,} satellite temperatures, and {found['held_out']:,} [predicted]" in text


def test_figures_of_sparse_matrices_are_those_of_the_files():
    text, lines = prose(), result("eigen/h200-25")["lines"]
    ours, theirs = line(lines, what="ours", k=24, precision="FDF"), line(lines, what="cupy", k=24, precision="float32")
    assert f"{ours['entries'] / 1e9:.0f}" == "1" and "24 pairs of a graph of a billion entries" in text
    assert figure(f"{ours['seconds'][-1]:.1f} s", "eigen/h200-25") + f", by CuPy {theirs['seconds'][-1]:.1f}." in text

    found = result("diff/h200-products")["measured"]
    ours, theirs = (1e3 * median(found[f"{name}forward and backward"]["seconds"]) for name in ("", "torch.sparse.mm "))
    assert f"with {found['pattern']['entries'] / 1e6:.0f} million entries" in text
    assert figure(f"{ours:.2f} ms", "diff/h200-products") + f", `torch.sparse.mm` {theirs:.1f}." in text

    cases = result("tensors/h200")["cases"]
    ours = line(cases, kernel="threshold", svt="subspace", size="4039x50x50")
    theirs = line(cases, peer="cupy eigh", size="4039x50x50")
    seconds = 1e3 * min(ours["seconds"]), 1e3 * min(theirs["seconds"])
    assert figure(f"{seconds[0]:.1f} ms", "tensors/h200") + f", CuPy's `eigh` alone {seconds[1]:.0f}." in text


def test_the_ratio_of_cuts_is_that_of_the_guide_and_its_file():
    assert result("spectral/host-walshaw")["balance"] == 0.0
    rows = re.findall(r"^\| ratio to METIS \|  \| ([\d.]+) \| 1.000 ", read(ROOT / "docs/spectral.md"), flags=re.MULTILINE)
    assert len(rows) == 1 and figure(rows[0], "spectral/host-walshaw") in read(README)


def test_the_table_of_speed_is_that_of_the_files():
    several = result("several_gpus/h200x2")["lines"]

    def walls(count: int, measured: str) -> float:
        """Seconds of a later call on so many GPUs."""
        return line(several, measured=measured, count=count)["walls"][-1]

    whole = result("wall/h200-function-65536")["lines"][0]["medians"]
    single = result("types/h200-float32-residue-host")
    pairs = result("eigen/h200-25")["lines"]
    ours, theirs = line(pairs, what="ours", k=8, precision="FDF"), line(pairs, what="cupy", k=8, precision="float32")
    products = result("diff/h200-products")["measured"]
    one, torch = (1e3 * median(products[f"{name}forward and backward"]["seconds"]) for name in ("", "torch.sparse.mm "))
    rows = [row.split("|")[2:-1] for row in read(README).splitlines() if row.startswith("| ") and "](benchmarks" in row]
    assert [[cell.strip() for cell in row] for row in rows] == [
        [
            figure(f"{whole['ours']:.2f} s", "wall/h200-function-65536"),
            f"cuSOLVER {whole['made whole, cuSOLVER in place']:.2f} s",
            f"{walls(2, 'default'):.2f} s",
        ],
        [
            figure(f"{single['wall_seconds'][-1]:.2f} s", "types/h200-float32-residue-host"),
            f"cuSOLVER {single['peers'][0]['seconds'][0]:.1f} s",
            "",
        ],
        [
            figure(f"{ours['seconds'][-1]:.2f} s", "eigen/h200-25"),
            f"CuPy {theirs['seconds'][-1]:.2f} s",
            f"{walls(2, 'eigsh'):.2f} s",
        ],
        [figure(f"{one:.2f} ms", "diff/h200-products"), f"torch {torch:.1f} ms", ""],
        [figure(f"{walls(1, 'impute'):.2f} s", "several_gpus/h200x2"), "", f"{walls(2, 'impute'):.2f} s"],
    ]
    again = [f"{walls(1, name):.2f}" for name in ("default", "eigsh", "impute")]
    assert f"one takes {again[0]}, {again[1]} and {again[2]} s." in read(README)


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
