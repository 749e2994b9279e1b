"""Checkpoints, progress and reports of eigensolvers: runs that were ended anyhow are gone on from to the same bits."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.host.eigsh_kills import PLACES, digest, matrix, solved
from tests.inside.calls import progress
from tests.inside.eigen import DeviceSpace
from tests.inside.tasks import CHUNK_ROWS

ROOT = Path(__file__).parents[2]
A = matrix()


@pytest.fixture(scope="module")
def right():
    """The bits of a run that nothing ended."""
    return digest(solved(None))


def interrupted(path, monkeypatch, product=25, **options):
    """Send an interrupt in the middle of a product, as Ctrl-C does; the file is left."""
    plain, calls = DeviceSpace.product, []

    def product_of(space, panel):
        calls.append(panel)
        if len(calls) == product:
            os.kill(os.getpid(), signal.SIGINT)
        plain(space, panel)

    with monkeypatch.context() as patch:
        patch.setattr(DeviceSpace, "product", product_of)
        with pytest.raises(KeyboardInterrupt) as told:
            solved(path, **options)
    assert "the same call goes on from it" in told.value.__notes__[0]
    assert path.exists()
    return path


# the promise


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("step", [1, pytest.param(3, marks=pytest.mark.commit)])
def test_a_run_that_is_killed_anywhere_is_gone_on_from_to_the_same_bits(step, tmp_path, right):
    """At every place, and at every third one."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tests.host.eigsh_kills", str(tmp_path), str(step)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == len(PLACES[::step]) and len(PLACES) == 20
    for each in found:
        assert each["status"] == -signal.SIGKILL, each
        assert each["bits"] == found[0]["bits"], each
        assert (each["resumed"] > 0) == each["was_there"], each
        assert each["left"] == [f"{each['what']}{each['number']}.ooceig"], each
    assert sum(each["was_there"] for each in found) >= 3 * len(found) // 5
    assert len({each["resumed"] for each in found}) >= 4
    assert found[0]["bits"] == right


@pytest.mark.parametrize("product", [17, 27])
def test_an_interrupt_leaves_a_checkpoint(product, tmp_path, monkeypatch, right):
    path = interrupted(tmp_path / "run.ooceig", monkeypatch, product)
    pairs = solved(path)
    assert digest(pairs) == right
    assert 0 < pairs.report.resumed < product
    assert pairs.report.passes > product and "went on from one" in str(pairs.report)


@pytest.mark.parametrize(("precision", "block", "product"), [("DDD", 1, 30), ("FDF", 4, 9), ("FFF", 2, 15)])
def test_every_precision_is_gone_on_from(precision, block, product, tmp_path, monkeypatch):
    options = {"precision": precision, "block": block, "ncv": 24, "tol": None}
    path = interrupted(tmp_path / "run", monkeypatch, product, **options)
    pairs = solved(path, **options)
    assert pairs.report.resumed and digest(pairs) == digest(solved(None, **options))


def test_passes_used_up_are_gone_on_from_with_more(tmp_path, right):
    with pytest.raises(oc.errors.NoConvergenceError):
        solved(tmp_path / "run", max_passes=20)
    pairs = solved(tmp_path / "run")
    assert pairs.report.resumed == 20
    np.testing.assert_allclose(pairs.eigenvalues, solved(None).eigenvalues, rtol=1e-12)


def test_a_finished_run_is_not_done_again(tmp_path, right):
    first = solved(tmp_path / "run")
    again = solved(tmp_path / "run")
    assert digest(first) == digest(again) == right
    assert again.report.resumed == again.report.passes == first.report.passes and not again.report.checkpoints


def hubs() -> scipy.sparse.csr_array:
    """A ring of two chunks of rows, and six vertices with hundreds of neighbours: few passes find their eigenvalues."""
    n, rng = CHUNK_ROWS + 3000, np.random.default_rng(5)
    degrees = (600, 500, 400, 300, 250, 200)
    rows = np.concatenate([np.arange(n), *(np.full(d, rng.integers(n)) for d in degrees)])
    columns = np.concatenate([(np.arange(n) + 1) % n, *(rng.integers(0, n, d) for d in degrees)])
    a = scipy.sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    a = (a + a.T).tocsr()
    a.data[:] = 1.0
    return a


def least_budget(a, **options):
    """The fewest bytes that do, as the error tells them; they hold no whole A."""
    with pytest.raises(oc.BudgetError) as told:
        oc.plan_eigsh(a, 4, memory_budget=1 << 16, **options)
    return told.value.needed_bytes


def test_devices_budget_and_blocks_may_be_others(tmp_path):
    """They are not in the key: the bits are those of one device that has all in memory."""
    options, a = {"which": "LA", "ncv": 12, "block": 2}, hubs()
    with oc.block_csr(a) as one:
        expected = digest(oc.eigsh(one, 4, devices="host:0", **options))
        with pytest.raises(oc.errors.NoConvergenceError):
            oc.eigsh(one, 4, devices="host:0", max_passes=8, checkpoint=tmp_path / "run", **options)
    with oc.block_csr(a, block_bytes=64 << 10, store=tmp_path / "A.oocsr") as other:
        where = {"devices": "host:0,host:1", "memory_budget": least_budget(other, devices="host:0,host:1", **options)}
        report = oc.eigsh(other, 4, checkpoint=tmp_path / "run", **where, **options).report
        assert report.resumed == 8 and len(report.bytes.executed) == 2
        assert report.bytes.executed == report.bytes.planned and sum(report.bytes.executed.values()) > other.nbytes
        assert digest(oc.eigsh(other, 4, **where, **options)) == expected


# what does not belong together


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"k": 5}, "k"),
        ({"which": "LM"}, "which"),
        ({"ncv": 30}, "ncv"),
        ({"block": 1}, "block"),
        ({"precision": "FDF"}, "precision"),
        ({"tol": 1e-9}, "tol"),
        ({"check": False}, "check"),
        ({"v0": np.arange(500.0)}, "start"),
    ],
)
def test_another_problem_is_refused_with_what_differs(change, name, tmp_path):
    with pytest.raises(oc.errors.NoConvergenceError):
        solved(tmp_path / "run", max_passes=16)
    before = (tmp_path / "run").read_bytes()
    with pytest.raises(oc.errors.CheckpointError) as told:
        solved(tmp_path / "run", **change)
    assert name in told.value.differences and "another eigenproblem" in str(told.value)
    assert (tmp_path / "run").read_bytes() == before


def test_another_matrix_is_refused_even_where_one_entry_differs(tmp_path):
    other = A.copy()
    at = other.nnz // 2
    row = int(np.searchsorted(other.indptr, at, side="right")) - 1
    column = int(other.indices[at])
    other[row, column] = other[column, row] = 7.0
    options = {"k": 4, "which": "LA", "ncv": 28, "block": 2, "devices": "host:0", "checkpoint": tmp_path / "run"}
    with pytest.raises(oc.errors.NoConvergenceError):
        oc.eigsh(A, max_passes=16, **options)
    with pytest.raises(oc.errors.CheckpointError, match="A: checksum"):
        oc.eigsh(other, **options)
    with oc.block_csr(A) as a, pytest.raises(oc.errors.CheckpointError, match=r"A: left|A: shift"):
        oc.eigsh(oc.laplacian(a), **options)


def test_an_operator_is_known_by_its_products(tmp_path):
    options = {"k": 4, "which": "LA", "ncv": 28, "block": 2}
    expected = digest(oc.eigsh(aslinearoperator(A), **options))
    with pytest.raises(oc.errors.NoConvergenceError):
        oc.eigsh(aslinearoperator(A), max_passes=20, checkpoint=tmp_path / "run", **options)
    other = LinearOperator(A.shape, matvec=lambda x: 2.0 * (A @ x), matmat=lambda x: 2.0 * (A @ x), dtype=float)
    with pytest.raises(oc.errors.CheckpointError, match="A: checksum"):
        oc.eigsh(other, checkpoint=tmp_path / "run", **options)
    pairs = oc.eigsh(aslinearoperator(A), checkpoint=tmp_path / "run", **options)
    assert pairs.report.resumed == 20
    np.testing.assert_allclose(pairs.eigenvalues, oc.eigsh(aslinearoperator(A), **options).eigenvalues, rtol=1e-12)
    assert digest(oc.eigsh(aslinearoperator(A), **options)) == expected


# files


def test_every_byte_of_a_checkpoint_counts(tmp_path):
    with pytest.raises(oc.errors.NoConvergenceError):
        solved(tmp_path / "run", max_passes=16)
    whole = (tmp_path / "run").read_bytes()
    places = [*np.random.default_rng(0).integers(0, len(whole), 40).tolist(), 0, 9, 4095, 4096, len(whole) - 1]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 16
        (tmp_path / "run").write_bytes(damaged)
        with pytest.raises(oc.errors.TierError) as told:
            solved(tmp_path / "run")
        assert isinstance(told.value, oc.errors.DamagedFileError | oc.errors.OutputError), place
    for size in (0, 7, 100, 5000, len(whole) - 1):
        (tmp_path / "run").write_bytes(whole[:size])
        with pytest.raises(oc.errors.TierError):
            solved(tmp_path / "run")


def test_files_of_others_are_not_replaced(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"\.ooceig"):
        solved(tmp_path / "mine.txt")
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(oc.errors.OutputError, match=r"checkpoint: .* is no checkpoint of an eigensolver"):
        solved(tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"
    with oc.block_csr(A, store=tmp_path / "packed.oocsr") as a, pytest.raises((oc.errors.OutputError, ValueError)):
        oc.eigsh(a, 4, ncv=28, block=2, devices="host:0", checkpoint=tmp_path / "packed.oocsr")
    with pytest.raises(oc.errors.MissingFolderError):
        solved(tmp_path / "nowhere" / "run")


def test_a_checkpoint_is_no_packed_matrix_and_is_not_replaced_by_one(tmp_path):
    with pytest.raises(oc.errors.NoConvergenceError):
        solved(tmp_path / "run", max_passes=16)
    with pytest.raises(oc.errors.OutputError, match="is no packed sparse matrix"):
        oc.block_csr(A, store=tmp_path / "run")


# progress and report


def test_progress_is_told_at_each_restart():
    told = []
    pairs = solved(None, progress=lambda done, total, seconds: told.append((done, total, seconds)), max_passes=777)
    passes = [done for done, _, _ in told]
    assert passes == sorted(passes) and len(passes) >= 3 and passes[-1] == pairs.report.passes
    assert {total for _, total, _ in told} == {777}


def test_lines_tell_passes_and_the_worst_residual(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    solved(None, progress=True)
    shown = capsys.readouterr().err
    assert re.search(r"eigsh: \d+ passes, .*residual \d\.\de[-+]\d\d, \d+ s\n", shown), shown


def test_a_report_is_a_page_and_plain_data():
    pairs = solved(None)
    report = pairs.report
    assert isinstance(report, tb.EigshReport)
    page = str(report)
    for words in ("4 eigenpairs (LA)", "all have converged", "restarts", "sweep", "worst", "floor", "seconds"):
        assert words in page, words
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["passes"] == report.passes and told["restarts"] == report.restarts
    np.testing.assert_array_equal(report.eigenvalues, pairs.eigenvalues)
    np.testing.assert_array_equal(report.residuals, pairs.residuals)
    assert report.worst == pairs.residuals.max() <= report.tol
    parts = report.seconds.parts
    assert 0 < parts["passes"] < parts["run"] < report.seconds.total and parts["orthogonalization"] > 0


def test_executed_bytes_are_those_that_are_planned(tmp_path):
    options = {"which": "LA", "ncv": 12, "block": 2, "devices": "host:0"}
    with oc.block_csr(hubs(), block_bytes=64 << 10, store=tmp_path / "A.oocsr") as a:
        budget = least_budget(a, **options) + (200 << 10)
        plan = oc.plan_eigsh(a, 4, memory_budget=budget, **options)
        report = oc.eigsh(a, 4, memory_budget=budget, **options).report
        first, both = (plan.link_bytes(passes)["file->host:0"] for passes in (1, 2))
        assert 0 < both - first < first == a.nbytes
    assert report.bytes.executed == report.bytes.planned == plan.link_bytes(report.moves.products)
    assert report.bytes.executed["file->host:0"] == first + (report.moves.products - 1) * (both - first)


def test_traces_say_what_was_done():
    pairs = solved(None, trace=True)
    metadata = pairs.trace.metadata
    assert metadata["k"] == 4 and metadata["restarts"] == pairs.report.restarts and metadata["ncv"] == 28
