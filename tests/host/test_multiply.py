"""``oc.multiply`` and multipliers on host devices: right, the same bits however they run, and exactly the planned bytes."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import ooc_chol as oc
from ooc_chol import block_csr
from tests.host.runs import ENVIRONMENT
from tests.inside.kernels import blas
from tests.inside.sparse import PackedLinearOperator
from tests.sparse_matrices import many_chunks, product_bound

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang")]

HOSTS = ["host:0", "host:1", "host:2", "host:3"]
BLOCK = "512 KiB"


@pytest.fixture(scope="module")
def a():
    return many_chunks()


@pytest.fixture(scope="module")
def packed(a):
    with block_csr(a, block_bytes=BLOCK) as found:
        yield found


@pytest.fixture(scope="module")
def stored(packed, tmp_path_factory):
    with block_csr(packed, store=tmp_path_factory.mktemp("packed") / "a.oocsr", block_bytes=BLOCK) as found:
        yield found


def vectors(matrix, columns, dtype=np.float64):
    return np.random.default_rng(columns).standard_normal((matrix.shape[1], columns)).astype(dtype)


def least_budget(matrix, columns, devices="host:0", precision=None):
    with pytest.raises(oc.BudgetError) as told:
        oc.plan_multiply(matrix, columns, devices=devices, precision=precision, memory_budget=1)
    return told.value.needed_bytes


# right


@pytest.mark.parametrize("precision", oc.Precision)
@pytest.mark.parametrize("columns", [1, 13])
def test_products_are_within_the_bound(a, packed, precision, columns):
    x = vectors(packed, columns, precision.storage)
    y = oc.multiply(packed, x, precision=precision, devices="host:0")
    assert y.dtype == precision.storage
    assert {block.kind.value for block in packed.blocks.blocks} == {"pattern", "int8", "fp32", "fp64"}
    assert (np.abs(y - a @ x.astype(np.float64)) <= product_bound(a, x, precision)).all()


def test_precision_follows_from_x(packed):
    x = np.ones(packed.shape[1])
    for given, wanted in ((x, "f8"), (x.astype("f4"), "f4"), (x.astype("i8"), "f8"), (x > 0, "f8")):
        assert oc.multiply(packed, given, devices="host:0").dtype == wanted


def test_x_may_lie_in_memory_in_any_order(a, packed):
    x = vectors(packed, 6)
    wanted = oc.multiply(packed, x, devices="host:0")
    for given in (np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], x[::-1].copy()[::-1], x.astype(">f8")):
        assert (oc.multiply(packed, given, devices="host:0") == wanted).all()
    assert oc.multiply(packed, x[:, 0], devices="host:0").shape == (packed.shape[0],)
    assert oc.multiply(packed, x[:, :0], devices="host:0").shape == (packed.shape[0], 0)


def test_nan_and_infinity_go_through_as_in_numpy():
    a = scipy.sparse.csr_array(np.array([[1.0, 0, 2], [0, 3, 0], [0, 0, 4]]))
    y = oc.multiply(a, [np.nan, np.inf, 1.0], devices="host:0")
    assert np.isnan(y[0])
    assert y[1] == np.inf
    assert y[2] == 4


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (0, 5), (5, 0), (0, 0)])
def test_small_and_empty_matrices(shape):
    a = scipy.sparse.csr_array(np.arange(np.prod(shape), dtype=float).reshape(shape))
    x = np.ones((shape[1], 2))
    assert (oc.multiply(a, x, devices="host:0") == a @ x).all()
    assert (oc.multiply(scipy.sparse.csr_array(shape), x, devices=2) == 0).all()


def test_rectangular_matrices_on_two_devices(a):
    wide = a[:, :5000].tocsr()
    x = np.random.default_rng(0).standard_normal((5000, 3))
    with block_csr(wide, block_bytes=BLOCK) as packed:
        y = oc.multiply(packed, x, devices=HOSTS[:2])
        assert (y == oc.multiply(packed, x, devices="host:0")).all()
        assert (np.abs(y - wide @ x) <= product_bound(wide, x, oc.Precision.DDD)).all()
        with oc.multiplier(packed, devices="host:0") as m, pytest.raises(ValueError, match="only a square matrix has powers"):
            m.apply(x[:, 0], times=2)


@pytest.mark.parametrize("devices", [HOSTS[:1], HOSTS])
def test_operators_scale_shift_and_repeat(a, packed, devices):
    n, rng = packed.shape[0], np.random.default_rng(1)
    left, right, shift = rng.uniform(0.5, 1.0, (3, n))
    x = rng.standard_normal((n, 3))
    operator = oc.Operator(packed, left=left, right=right, shift=shift)
    with oc.multiplier(operator, 3, devices=devices) as m:
        y = m(x)
        wanted = shift[:, None] * x + left[:, None] * (a @ (right[:, None] * x))
        assert np.allclose(y, wanted, rtol=1e-13, atol=1e-12)
        assert (m.apply(x, times=3) == m(m(y))).all()
    number = oc.Operator(packed, left=-2.0, shift=0.5)
    assert np.allclose(oc.multiply(number, x, devices=devices), 0.5 * x - 2 * (a @ x), rtol=1e-12, atol=1e-12)


# the same bits, and the planned bytes


@pytest.mark.parametrize(
    ("count", "columns"),
    [(1, 1), (4, 1), (2, 12), *(pytest.param(*each, marks=pytest.mark.thorough) for each in [(2, 1), (1, 12), (4, 12)])],
)
def test_bits_and_bytes_of_a_file_from_three_blocks_to_all(packed, stored, count, columns):
    x = vectors(packed, columns)
    wanted, power = oc.multiply(packed, x, devices="host:0"), None
    least = least_budget(stored, columns, HOSTS[:count])
    for budget in (least, least + 700_000, least + 4_000_000, least + 40_000_000):
        with oc.multiplier(stored, columns, devices=HOSTS[:count], memory_budget=budget) as m:
            assert (m(x) == wanted).all()
            found = m.apply(x, times=3)
            power = found if power is None else power
            assert (found == power).all()
            report = m.report
            assert report.bytes.executed == report.bytes.planned
            assert sum(report.bytes.executed.values()) == m.plan.copied_bytes(4)
            assert m.plan.peak_bytes <= budget
            assert report.exchanged_bytes == 2 * m.plan.exchanged_bytes
    assert not m.plan.later_bytes


@pytest.mark.parametrize("count", [2, 4])
def test_any_number_of_devices_gives_the_bits_of_one(packed, count):
    x = vectors(packed, 3)
    with oc.multiplier(packed, 3, devices="host:0") as m:
        wanted, power = m(x), m.apply(x, times=4)
    with oc.multiplier(packed, 3, devices=HOSTS[:count]) as m:
        assert len(m.plan.shares) == count
        for _ in range(3):
            assert (m(x) == wanted).all()
            assert (m.apply(x, times=4) == power).all()
        assert sum(m.report.bytes.executed.values()) == 0


def bits_with_threads(threads, budget, call, monkeypatch):
    """What ``call(budget)`` gives where BLAS has so many threads."""
    monkeypatch.setattr(blas, "current_threads", lambda: threads)
    return np.asarray(call(budget)).tobytes()


@pytest.mark.parametrize("precision", ["DDD", "FDF", "FFF"])
def test_a_budget_for_one_thread_is_enough_for_any_number_with_the_same_bits(a, packed, precision, monkeypatch):
    bands = scipy.sparse.diags_array([8.0 / np.arange(1.0, 4001.0), np.full(3999, 0.01), np.full(3999, 0.01)], offsets=[0, 1, -1])
    symmetric = block_csr(bands.tocsr())
    x, how = vectors(a, 8), {"precision": precision, "devices": "host:0"}
    monkeypatch.setattr(blas, "current_threads", lambda: 1)
    least = {
        "multiply": least_budget(packed, 8, precision=precision),
        "eigsh": oc.plan_eigsh(symmetric, 4, **how, memory_budget="1 GB").peak_bytes,
    }
    calls = {
        "multiply": lambda budget: oc.multiply(packed, x, **how, memory_budget=budget),
        "eigsh": lambda budget: oc.eigsh(symmetric, 4, which="LA", tol=1e-3, **how, memory_budget=budget).eigenvectors,
    }
    for name, call in calls.items():
        found = {bits_with_threads(threads, least[name], call, monkeypatch) for threads in (1, 2, 16)}
        found |= {bits_with_threads(16, 1 << 30, call, monkeypatch)} if name == "multiply" else set()
        assert len(found) == 1
    with pytest.raises(oc.BudgetError) as told:
        bits_with_threads(16, 1, calls["multiply"], monkeypatch)
    assert told.value.needed_bytes == least["multiply"]


@pytest.mark.parametrize("size", ["64 KiB", "1 MiB", "1 GiB"])
def test_any_size_of_blocks_gives_the_same_bits(a, packed, size):
    x = vectors(packed, 4)
    with block_csr(a, block_bytes=size) as other:
        assert len(other.blocks.blocks) != len(packed.blocks.blocks)
        assert (oc.multiply(other, x, devices="host:0") == oc.multiply(packed, x, devices="host:0")).all()


def test_several_scans_a_product_give_the_bits_of_one(packed, stored):
    x = vectors(packed, 24)
    wanted = oc.multiply(packed, x, devices="host:0")
    with oc.multiplier(stored, 24, devices="host:0", memory_budget=least_budget(stored, 24)) as m:
        assert m.plan.scans == 3
        assert (m(x) == wanted).all()
        assert sum(m.report.bytes.executed.values()) == m.plan.first_bytes


def test_the_arena_is_what_was_planned(stored, monkeypatch):
    from tests.inside.hardware import HostArena

    allocated = []
    ask = HostArena.bytes_for
    monkeypatch.setattr(HostArena, "bytes_for", staticmethod(lambda *given: allocated.append(ask(*given)) or allocated[-1]))
    for columns in (1, 3, 24):
        with oc.multiplier(stored, columns, devices="host:0", memory_budget=least_budget(stored, columns) + 2_000_000) as m:
            assert allocated[-1] == m.plan.peak_bytes


# what a multiplier tells


def test_report_and_plan_are_pages(stored):
    with oc.multiplier(stored, 2, devices="host:0", memory_budget=least_budget(stored, 2)) as m:
        assert "no product was made" in str(m.report)
        m(vectors(stored, 2))
        page = str(m.report)
        assert "file->host:0" in page
        assert m.report.seconds.total > 0
        assert m.report.entries_per_second > 0
        assert m.report.bytes.executed == m.report.bytes.planned
        assert all(len(repr(each)) < 200 and "\n" not in repr(each) for each in (m, m.plan, m.report))


def test_a_trace_has_all_copies_and_can_be_saved(stored, tmp_path):
    with oc.multiplier(stored, 2, devices=HOSTS[:2], memory_budget=least_budget(stored, 2, HOSTS[:2]), trace=True) as m:
        m.apply(vectors(stored, 2), times=2)
        trace = m.trace
        moved = sum(record.nbytes for record in trace.records if record.kind == "fetch")
        pulled = sum(record.nbytes for record in trace.records if record.kind == "pull")
        assert (moved, pulled) == (sum(m.report.bytes.executed.values()), m.report.exchanged_bytes)
    assert len(oc.Trace.load(trace.save(tmp_path / "run.pftrace")).records) == len(trace.records)
    assert "peer->host:1" in trace.summary()
    with oc.multiplier(stored, devices="host:0") as m:
        assert m.trace is None


def test_progress_ends_with_all_entries(packed):
    told = []
    oc.multiply(packed, vectors(packed, 3), devices=HOSTS[:2], progress=lambda *given: told.append(given))
    done, totals, seconds = zip(*told, strict=True)
    assert done[-1] == totals[-1] == 3 * packed.nnz
    assert list(done) == sorted(done)
    assert list(seconds) == sorted(seconds)


def test_scipys_solvers_take_a_packed_matrix(a):
    n = 3000
    band = scipy.sparse.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    b = np.random.default_rng(0).standard_normal(n)
    with oc.multiplier(band, 4, devices="host:0").aslinearoperator(symmetric=True) as operator:
        assert isinstance(operator, scipy.sparse.linalg.LinearOperator)
        x, code = scipy.sparse.linalg.cg(operator, b, rtol=1e-10)
        assert code == 0
        assert np.linalg.norm(band @ x - b) <= 1e-9 * np.linalg.norm(b)
        many = np.random.default_rng(1).standard_normal((n, 7))
        assert np.allclose(operator @ many, band @ many)
        assert np.allclose(operator.T @ b, band.T @ b)
    with block_csr(band) as packed, oc.multiplier(packed, devices="host:0").aslinearoperator() as operator:
        assert isinstance(operator, PackedLinearOperator)
        with pytest.raises(oc.errors.UnsupportedTypeError, match="transpose"):
            operator.rmatvec(b)
    with pytest.raises(oc.errors.ClosedError):
        operator.matvec(b)


# what is refused, and what stays behind


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (np.ones(5), ValueError, "must have 4 rows"),
        (np.ones((4, 2, 2)), ValueError, "give a vector"),
        (np.float64(1.0), ValueError, "give a vector"),
        (np.ones(4, complex), TypeError, "complex128"),
        (np.ones(4, np.longdouble), TypeError, "real numbers up to float64"),
        (["a"] * 4, TypeError, "dtype <U1"),
        (scipy.sparse.eye_array(4).tocsr(), TypeError, "X is a sparse csr_array"),
        (np.ma.masked_array(np.ones(4), [0, 1, 0, 0]), TypeError, "masked"),
    ],
)
def test_bad_x_is_refused(x, error, words):
    with oc.multiplier(scipy.sparse.eye_array(4).tocsr(), devices="host:0") as m, pytest.raises(error, match=words):
        m(x)


def test_bad_arguments_are_refused(packed):
    x = np.ones(packed.shape[1])
    for options, words in (
        ({"precision": "FFD"}, "precision is 'FFD'"),
        ({"devices": "host:99"}, "no device"),
        ({"memory_budget": "lots"}, "not a size"),
    ):
        with pytest.raises(ValueError, match=words):
            oc.multiply(packed, x, **({"devices": "host:0"} | options))
    with oc.multiplier(packed, devices="host:0") as m:
        with pytest.raises(ValueError, match="columns=2"):
            m(np.ones((packed.shape[1], 2)))
        with pytest.raises(ValueError, match="times is 0"):
            m.apply(x, times=0)
        m(x)
    with pytest.raises(oc.errors.ClosedError):
        m(x)
    assert m.closed
    m.close()


def test_too_small_a_budget_tells_the_bytes_that_do(stored):
    with pytest.raises(oc.BudgetError, match="larger memory_budget") as told:
        oc.multiply(stored, np.ones(stored.shape[1]), devices="host:0", memory_budget="1 MB")
    oc.multiply(stored, np.ones(stored.shape[1]), devices="host:0", memory_budget=told.value.needed_bytes)
    with pytest.raises(oc.BudgetError):
        oc.multiply(stored, np.ones(stored.shape[1]), devices="host:0", memory_budget=told.value.needed_bytes - 1)


@pytest.mark.parametrize("use", [lambda m, x: m(x), lambda m, x: m.close()])
def test_a_product_is_not_begun_nor_closed_within_a_product(packed, use):
    x = np.ones(packed.shape[1])
    with oc.multiplier(packed, devices="host:0", progress=lambda *_: use(m, x)) as m:
        with pytest.raises(RuntimeError, match="is in a product"):
            m(x)
        assert m.closed
    assert not own_threads()


def test_a_file_that_would_not_be_written_is_refused(packed, tmp_path):
    for given in (packed, oc.Operator(packed)):
        with pytest.raises(ValueError, match="packed is the file"):
            oc.multiply(given, np.ones(packed.shape[1]), devices="host:0", packed=tmp_path / "a.oocsr")


def test_open_things_are_neither_copied_nor_pickled(packed):
    with oc.multiplier(packed, devices="host:0") as m:
        for what in (packed, m, oc.Operator(packed)):
            for make in (copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="neither copied nor pickled"):
                    make(what)
        for what in (packed, m):
            with pytest.raises(TypeError, match="neither copied nor pickled"):
                copy.copy(what)
        m(np.ones(packed.shape[1]))


def test_operators_of_python_say_what_to_write(packed):
    x = np.ones(packed.shape[1])
    for what in (packed, oc.Operator(packed)):
        with pytest.raises(TypeError, match=r"oc\.multiply"):
            what @ x
        with pytest.raises(TypeError):
            x @ what


@pytest.mark.usefixtures("processes")
def test_a_child_closes_what_a_thread_of_its_parent_is_using(packed):
    x = np.ones(packed.shape[1])
    told = threading.Event()
    with oc.multiplier(packed, devices="host:0", progress=lambda *_: told.set() or time.sleep(0.5)) as m:
        thread = threading.Thread(target=m, args=(x,))
        thread.start()
        told.wait()
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # ends it, if it waits for a thread that it has not
            m.close()
            os._exit(7 if m.closed else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        thread.join()
        assert not m.closed


def own_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ooc_chol")]


def test_a_failed_read_closes_the_multiplier_and_leaves_no_thread(a, tmp_path):
    path = tmp_path / "a.oocsr"
    with block_csr(a, store=path, block_bytes=BLOCK) as stored:
        x = np.ones(stored.shape[1])
        budget = least_budget(stored, 1, HOSTS[:2])
        with oc.multiplier(stored, devices=HOSTS[:2], memory_budget=budget) as m:
            m(x)
            os.truncate(path, os.path.getsize(path) // 2)
            with pytest.raises(oc.errors.TierError):
                m(x)
            assert m.closed
            with pytest.raises(oc.errors.ClosedError):
                m(x)
    assert not own_threads()


def test_an_interrupt_leaves_no_thread(packed):
    x = vectors(packed, 8)
    for delay in (0.01, 0.05, 0.2):
        with oc.multiplier(packed, 8, devices=HOSTS[:2]) as m:
            signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(KeyboardInterrupt):
                m.apply(x, times=1000)
            assert m.closed
        assert not own_threads()
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_a_matrix_packed_by_the_call_is_closed_with_it(a, tmp_path):
    path = tmp_path / "kept.oocsr"
    x = np.ones(a.shape[1])
    y = oc.multiply(a, x, devices="host:0", packed=path)
    assert (oc.multiply(os.fspath(path), x, devices="host:0") == y).all()
    assert not own_threads()


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_a_forked_child_is_told(packed):
    with oc.multiplier(packed, devices="host:0") as m:
        x = np.ones(packed.shape[1])
        m(x)
        child = os.fork()
        if not child:
            try:
                m(x)
            except oc.errors.ForkedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        m(x)


@pytest.mark.usefixtures("processes")
def test_a_multiplier_that_nobody_closes_ends_with_the_process():
    code = (
        "import numpy as np, ooc_chol as oc\nm = oc.multiplier(oc.testing.rmat(6), devices='host:0')\n"
        "print(m(np.ones(64)).sum() > 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "True", "")
