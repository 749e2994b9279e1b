"""``ooc-chol eigsh`` and ``ooc-chol svds``: what is printed, written and answered, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

import ooc_chol as oc
from tests.inside.cli import main

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "no_lapack")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, with a graph and a rectangular matrix in it."""
    monkeypatch.chdir(tmp_path)
    with oc.block_csr(oc.testing.rmat(9, 8), store="graph.oocsr"):
        pass
    sp.save_npz("tall.npz", sp.random_array((200, 150), density=0.05, rng=np.random.default_rng(1)).tocsr())
    return tmp_path


def run(capsys, *words):
    """Exit status, output and error output."""
    capsys.readouterr()
    try:
        status = main([str(word) for word in words])
    except SystemExit as ended:
        status = int(ended.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def graph():
    with oc.block_csr("graph.oocsr") as packed:
        return packed.tocsr()


def test_eigsh_writes_what_it_prints(capsys, folder):
    words = ("eigsh", "graph.oocsr", "-k", 4, "--devices", "host:0", "--output", "pairs.npz", "--quiet", "--json")
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, "")
    answer = json.loads(out)
    expected = np.linalg.eigvalsh(graph().toarray())
    expected = np.sort(expected[np.argsort(-np.abs(expected))[:4]])
    np.testing.assert_allclose(answer["eigenvalues"], expected, rtol=1e-9)
    assert max(answer["residuals"]) <= 1e-10
    with np.load("pairs.npz", allow_pickle=False) as written:
        assert written["eigenvalues"].tolist() == answer["eigenvalues"]
        assert written["eigenvectors"].shape == (512, 4)
    assert run(capsys, *words)[0] == 0  # a file of ours may be replaced
    np.savez("pairs.npz", eigenvalues=np.ones(3))
    assert run(capsys, *words)[0] == 2
    assert run(capsys, *words, "--force")[0] == 0


def test_eigsh_takes_its_options(capsys, folder):
    options = (
        "--which",
        "LA",
        "--precision",
        "FDF",
        "--tol",
        "1e-5",
        "--ncv",
        40,
        "--block",
        2,
        "--max-passes",
        900,
        "--no-check",
    )
    status, out, _ = run(capsys, "eigsh", "graph.oocsr", "-k", 3, "--normalized", *options, "--memory-budget", "100 MB")
    assert status == 0
    values = [float(line.split()[0]) for line in out.splitlines()[1:4]]
    with oc.block_csr("graph.oocsr") as packed:
        dense = oc.multiply(oc.laplacian(packed, normalized=True), np.eye(512), devices="host:0")
    np.testing.assert_allclose(values, np.linalg.eigvalsh(dense)[-3:], atol=2e-5)


@pytest.mark.parametrize(
    ("words", "expected"), [((), {}), (("--degree", "auto"), {"degree": None}), (("--degree", 4), {"degree": 4})]
)
def test_a_degree_may_be_left_to_the_run(capsys, folder, monkeypatch, words, expected):
    asked, plan = {}, oc.plan_eigsh
    monkeypatch.setattr(oc, "plan_eigsh", lambda a, k, **options: asked.update(options) or plan(a, k, **options))
    assert run(capsys, "eigsh", "graph.oocsr", "--which", "SA", "--plan", *words)[0] == 0
    assert {name: asked[name] for name in asked if name == "degree"} == expected


def test_eigsh_plans(capsys, folder):
    status, out, err = run(capsys, "eigsh", "graph.oocsr", "-k", 4, "--plan", "--devices", "cuda:0", "--memory-budget", "1 GiB")
    assert (status, err) == (0, "")
    assert out.startswith("Plan: 4 eigenpairs")


def test_svds_writes_what_it_prints(capsys, folder):
    status, out, err = run(capsys, "svds", "tall.npz", "-k", 5, "--devices", "host:0", "-o", "found.npz", "--json", "--quiet")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    a = sp.load_npz("tall.npz").toarray()
    np.testing.assert_allclose(answer["singular_values"], np.linalg.svd(a, compute_uv=False)[4::-1], rtol=1e-12)
    with np.load("found.npz", allow_pickle=False) as written:
        residual = np.linalg.norm(a @ written["vt"].T - written["u"] * written["singular_values"], axis=0)
    assert residual.max() <= 1e-10 * answer["singular_values"][-1]
    assert "A.T u - s v" in run(capsys, "svds", "tall.npz", "-k", 5)[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("eigsh", "tall.npz"), "200 x 150"),
        (("eigsh", "graph.oocsr", "-k", 0), "k is 0"),
        (("eigsh", "graph.oocsr", "-o", "graph.oocsr"), "--output"),
        (("eigsh", "graph.oocsr", "-o", "pairs.csv"), "pairs.csv"),
        (("eigsh", "graph.oocsr", "--plan", "-o", "pairs.npz"), "--plan runs nothing"),
        (("eigsh", "nowhere.npz"), "nowhere.npz"),
        (("svds", "tall.npz", "-k", 151), "at most 150"),
        (("svds", "tall.npz", "--max-passes", 9, "--block", 1, "--ncv", 20), "max_passes"),
    ],
)
def test_mistakes_are_one_line_and_exit_status_2(capsys, folder, words, text):
    status, out, err = run(capsys, *words, "--quiet")
    assert (status, out) == (2, "")
    assert err.startswith("ooc-chol: ") and err.count("\n") == 1
    assert text in err
