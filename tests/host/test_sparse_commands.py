"""``ooc-chol sparse``: what it makes and packs is what Python would, products are those of SciPy, and mistakes are one line."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array, save_npz
from scipy.sparse.csgraph import laplacian

import ooc_chol as oc
from tests.inside.cli import main

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a packed graph, the matrix of a file of SciPy's, a list of edges, and vectors."""
    monkeypatch.chdir(tmp_path)
    oc.block_csr(oc.testing.rmat(8), store="graph.oocsr", block_bytes=4096).close()
    matrix = random_array((60, 60), density=0.1, rng=1, format="csr")
    matrix.data[0] = 0.0
    save_npz("matrix.npz", matrix)
    np.savetxt("edges.txt", [(1, 2), (2, 3)], fmt="%d")
    Path("x.dat").write_text("1 2\n")
    np.save("x.npy", np.random.default_rng(0).standard_normal((256, 3)))
    return tmp_path


def run(capsys, *words):
    """Exit status, standard output and standard error of a command."""
    status = main(["sparse", *map(str, words)])
    told = capsys.readouterr()
    return status, told.out, told.err


def answer(capsys, *words):
    """The JSON object of a command that succeeds."""
    status, out, _ = run(capsys, *words, "--json", "--quiet")
    assert status == 0
    return json.loads(out)


def packed(path):
    """The matrix in a packed file, as SciPy has it."""
    with oc.block_csr(path) as matrix:
        return matrix.tocsr()


def assert_same(one, other):
    """Both matrices have the same entries, to the bit."""
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))


@pytest.mark.parametrize(
    ("words", "graph"),
    [
        (["rmat", "--scale", 7], lambda: oc.testing.rmat(7)),
        (
            ["rmat", "--scale", 6, "--degree", 4, "--seed", 3, "--quadrants", "0.4,0.3,0.2", "--directed"],
            lambda: oc.testing.rmat(6, 4, 0.4, 0.3, 0.2, seed=3, directed=True),
        ),
        (["urand", "--scale", 6, "--degree", 3, "--seed", 5], lambda: oc.testing.urand(6, 3, 5)),
        (["rmat", "--scale", 7, "--order", "degree"], lambda: oc.testing.rmat(7, order="degree")),
    ],
)
def test_a_graph_that_is_made_is_that_of_python(capsys, folder, words, graph):
    facts = answer(capsys, "make", *words, "--output", "made.oocsr", "--block-bytes", "8 KiB")
    with oc.block_csr(graph()) as expected:
        assert_same(packed("made.oocsr"), expected.tocsr())
        assert facts["nnz"] == expected.nnz and facts["path"] == str(folder / "made.oocsr")


def test_packing_rounds_and_drops_where_asked(capsys, folder):
    kept = answer(capsys, "pack", "matrix.npz", "-o", "kept.oocsr")
    dropped = answer(capsys, "pack", "matrix.npz", "-o", "dropped.oocsr", "--dtype", "float32", "--zeros", "drop")
    assert kept["nnz"] == dropped["nnz"] + 1 == 360 and kept["counts"]["zeros"] == dropped["counts"]["zeros"] == 1
    assert kept["dtype"] == "float64" and kept["rounded"] == 0
    assert packed("dropped.oocsr").dtype == np.float32 and dropped["rounded"] > 300
    np.testing.assert_array_equal(packed("dropped.oocsr").toarray(), packed("kept.oocsr").toarray().astype(np.float32))


def test_packing_by_degree_changes_no_answer(capsys, folder):
    assert answer(capsys, "pack", "graph.oocsr", "-o", "ordered.oocsr", "--order", "degree")["order"] == "degree"
    assert answer(capsys, "info", "graph.oocsr")["order"] is None
    assert_same(packed("ordered.oocsr"), packed("graph.oocsr"))
    for name in ("graph", "ordered"):
        answer(capsys, "multiply", f"{name}.oocsr", "x.npy", "-o", f"{name}.npy", "--devices", "host:0")
    np.testing.assert_allclose(np.load("ordered.npy"), np.load("graph.npy"), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("always::ooc_chol.errors.InputWarning")
def test_a_list_of_edges_says_how_it_counts(capsys, folder):
    answer(capsys, "pack", "edges.txt", "-o", "edges.oocsr", "--one-based")
    np.testing.assert_array_equal(packed("edges.oocsr").toarray(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    assert answer(capsys, "info", "edges.txt", "--one-based", "--directed")["nnz"] == 2
    assert run(capsys, "info", "edges.txt")[2].startswith("ooc-chol: warning: edges.txt: vertices begin with 1")


def test_the_page_is_that_of_the_matrix(capsys, folder):
    with oc.block_csr("graph.oocsr") as graph:
        assert run(capsys, "info", "graph.oocsr") == (0, f"{graph.info()}\n", "")


def test_a_damaged_file_is_told_from_a_whole_one(capsys, folder):
    assert answer(capsys, "info", "graph.oocsr", "--verify")["is_whole"]
    with oc.block_csr("graph.oocsr") as graph:
        first, _ = graph.tier.span(2)
    whole = (folder / "graph.oocsr").read_bytes()
    (folder / "bad.oocsr").write_bytes(whole[: first + 5] + bytes([whole[first + 5] ^ 1]) + whole[first + 6 :])
    status, out, _ = run(capsys, "info", "bad.oocsr", "--verify")
    assert status == 1 and "block 2 is damaged" in out and out.count("is damaged") == 1
    (folder / "cut.oocsr").write_bytes(whole[:-1])
    status, out, _ = run(capsys, "info", "cut.oocsr", "--verify", "--json", "--quiet")
    assert status == 1 and not json.loads(out)["is_whole"] and "truncated" in json.loads(out)["damage"][0]
    assert run(capsys, "info", "cut.oocsr")[0] == 2


@pytest.mark.parametrize("budget", [None, "6.5 MB"])
def test_products_are_those_of_scipy(capsys, folder, budget):
    words = ["multiply", "graph.oocsr", "x.npy", "-o", "y.npy", "--times", 2, "--devices", "host:0"]
    report = answer(capsys, *words, *(["--memory-budget", budget] if budget else []))
    a, x = packed("graph.oocsr"), np.load("x.npy")
    expected = a @ (a @ x)
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=1e-12, atol=1e-12 * abs(expected).max())
    assert report["norm"] == pytest.approx(np.linalg.norm(expected)) and report["bytes"]["planned"] == report["bytes"]["executed"]


@pytest.mark.parametrize(("option", "normed"), [("--laplacian", False), ("--normalized", True)])
def test_laplacians_are_those_of_scipy(capsys, folder, option, normed):
    answer(capsys, "multiply", "graph.oocsr", "x.npy", "-o", "y.npy", option)
    graph = packed("graph.oocsr")
    expected = laplacian(csr_array(graph), normed=normed) @ np.load("x.npy")
    np.testing.assert_allclose(np.load("y.npy"), expected, rtol=0, atol=1e-12 * abs(expected).max())


def test_an_x_of_float32_and_of_fortran_order_is_read_as_numpy_reads_it(capsys, folder):
    x = np.asfortranarray(np.load("x.npy").astype(np.float32))
    np.save("f.npy", x)
    answer(capsys, "multiply", "graph.oocsr", "f.npy", "-o", "y.npy")
    y = np.load("y.npy")
    assert y.dtype == np.float32, "FDF is what an X of float32 gets"
    with oc.block_csr("graph.oocsr") as graph:
        np.testing.assert_array_equal(y, oc.multiply(graph, x))
    np.save("v.npy", x[:, 0])
    answer(capsys, "multiply", "graph.oocsr", "v.npy", "-o", "z.npy", "--precision", "FFF")
    assert np.load("z.npy").shape == (256,)


def test_random_columns_are_those_of_their_seed(capsys, folder):
    norms = [answer(capsys, "multiply", "graph.oocsr", "--columns", 2, "--seed", seed)["norm"] for seed in (1, 1, 2)]
    x = np.random.default_rng(1).standard_normal((256, 2))
    assert norms[0] == norms[1] == pytest.approx(np.linalg.norm(packed("graph.oocsr") @ x)) and norms[2] != norms[0]


def test_a_plan_runs_nothing_and_is_that_of_python(capsys, folder):
    words = ["multiply", "graph.oocsr", "--plan", "--columns", 9, "--precision", "FDF", "--normalized", "--memory-budget", "9 MB"]
    before = sorted(os.listdir())
    status, out, _ = run(capsys, *words, "--devices", "cuda:0")
    with oc.block_csr("graph.oocsr") as graph:
        operator = oc.laplacian(graph, normalized=True)
        plan = oc.plan_multiply(operator, 9, precision="FDF", devices="cuda:0", memory_budget="9 MB")
    assert (status, out) == (0, f"{plan}\n") and sorted(os.listdir()) == before


def test_a_trace_is_one_that_opens(capsys, folder):
    status, out, _ = run(capsys, "multiply", "graph.oocsr", "--times", 3, "--trace", "run.pftrace.gz", "--quiet", "--json")
    assert status == 0 and json.loads(out)["trace"] == "run.pftrace.gz"
    assert oc.Trace.load("run.pftrace.gz").metadata["scans"] == 3


MISTAKES = {
    "no such file": (["info", "none.oocsr"], "none.oocsr"),
    "a file of no known format": (["info", "x.dat"], r"x\.dat ends in none of \.npz"),
    "options that a packed file has no use for": (["multiply", "graph.oocsr", "--zeros", "drop"], "no use for --zeros drop"),
    "checksums of what has none": (["info", "matrix.npz", "--verify"], "no packed matrix"),
    "the source as output": (["pack", "graph.oocsr", "-o", "graph.oocsr"], "same file as SOURCE"),
    "a file of somebody else as output": (["pack", "matrix.npz", "-o", "taken.oocsr"], "taken.oocsr.*--force"),
    "an output of another kind": (["make", "rmat", "--scale", "4", "-o", "x.npy"], r"x\.npy"),
    "X as output": (["multiply", "graph.oocsr", "x.npy", "-o", "x.npy", "--force"], "same file as X"),
    "X and random columns": (["multiply", "graph.oocsr", "x.npy", "--columns", "3"], "--columns and --seed"),
    "no columns": (["multiply", "graph.oocsr", "--columns", "0"], "at least 1"),
    "a plan and a file": (["multiply", "graph.oocsr", "--plan", "-o", "y.npy"], "--plan runs nothing"),
    "X of another height": (["multiply", "matrix.npz", "x.npy"], "X must have 60 rows"),
    "X of three dimensions": (["multiply", "graph.oocsr", "cube.npy"], r"shape \(2, 2, 2\)"),
    "X of complex numbers": (["multiply", "graph.oocsr", "complex.npy"], "complex128"),
    "X cut short": (["multiply", "graph.oocsr", "cut.npy"], "not a complete"),
    "X that is no file of NumPy's": (["multiply", "graph.oocsr", "edges.txt"], "not a complete"),
    "too little memory": (["multiply", "graph.oocsr", "--memory-budget", "20 kB"], r"at least \d+ are needed.*--memory-budget"),
    "quadrants of a uniform graph": (["make", "urand", "--scale", "4", "--quadrants", "1,0,0", "-o", "g.oocsr"], "of rmat"),
    "a scale that is too large": (["make", "rmat", "--scale", "40", "-o", "g.oocsr"], "1 to 30"),
    "no such device": (["multiply", "graph.oocsr", "--devices", "tpu:0"], "no device 'tpu:0'"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(capsys, folder, kind):
    (folder / "taken.oocsr").write_text("notes")
    np.save("cube.npy", np.zeros((2, 2, 2)))
    np.save("complex.npy", np.zeros(256, complex))
    (folder / "cut.npy").write_bytes((folder / "x.npy").read_bytes()[:-8])
    before = {name: (folder / name).read_bytes() for name in os.listdir()}
    words, text = MISTAKES[kind]
    status, out, err = run(capsys, *words, "--quiet")
    assert (status, out) == (2, "")
    assert err.startswith("ooc-chol: ") and err.count("\n") == 1 and re.search(text, err), err
    assert {name: (folder / name).read_bytes() for name in os.listdir()} == before
