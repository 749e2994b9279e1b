"""Every error: its type and facts, a text that says what to do, and nothing left behind: no thread, no file, no changed input."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import memory_store
from tests.host.matrices import FAMILIES, lapack_minor
from tests.host.runs import COMMAND, ENVIRONMENT, budget_of
from tests.host.spoiled import INDEFINITE, NB, NT, PLACES, N, good
from tests.inside.dense import POLICIES, MemoryStore
from tests.inside.hardware import HostDevice, host
from tests.inside.memory import AbstractSource, as_source
from tests.products import pairwise

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

#: Tiles of memory and workers that every error is met with.
MEMORY_AND_WORKERS = [(3, 1), (15, 1), (4, 3)]
WORKERS = pytest.mark.parametrize(("tiles", "devices"), MEMORY_AND_WORKERS)
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)


def failing(a, expected: type[BaseException], *, tiles: int = 15, **options) -> BaseException:
    """The error of a factorization, after everything that must hold once it is raised; L in memory, then in a file."""
    bits = a.tobytes() if isinstance(a, np.ndarray) else b""
    before = set(threading.enumerate())
    options = {"tile_size": NB, "memory_budget": budget_of(tiles, N, NB), **options}
    with pytest.raises(expected) as caught:
        oc.cholesky(a, **options)
    assert type(caught.value) is expected
    assert set(threading.enumerate()) <= before, "threads are left"
    assert not isinstance(a, np.ndarray) or a.tobytes() == bits, "A was changed"
    return caught.value


@pytest.fixture
def finished(tmp_path):
    """A store file from an earlier run, which must survive: its path; checked at the end."""
    folder = tmp_path / "store"
    folder.mkdir()
    path = folder / "L.ooc"
    oc.cholesky(np.eye(3), store=path).close()
    bits = path.read_bytes()
    yield path
    assert path.read_bytes() == bits, "the finished file was harmed"
    assert os.listdir(folder) == ["L.ooc"], "something is left beside it"


# not positive definite


def assert_not_positive(error: oc.NotPositiveDefiniteError, minor: int) -> None:
    k = (minor - 1) // NB
    assert (error.minor, error.tile) == (minor, (k, k))
    assert isinstance(error, np.linalg.LinAlgError) and isinstance(error, oc.OocCholError)
    assert f"minor of order {minor} is not positive definite" in str(error)
    assert f"row {minor - 1}" in str(error) and "nugget" in str(error)
    assert error.__context__ is None and error.__cause__ is None
    again = pickle.loads(pickle.dumps(error))
    assert (again.minor, again.tile, str(again)) == (error.minor, error.tile, str(error))


@pytest.mark.parametrize(
    ("minor", "policy", "where"), pairwise([1, 2, 20, 21, 40, 55, 60, 61, 80, 81, 89, 90], list(POLICIES), MEMORY_AND_WORKERS)
)
def test_the_minor_that_fails_in_every_diagonal_tile(minor, policy, where):
    (tiles, devices), a = where, good()
    a[minor - 1, minor - 1] = -1.0
    assert_not_positive(failing(a, oc.NotPositiveDefiniteError, tiles=tiles, devices=devices, policy=policy), minor)


@WORKERS
@pytest.mark.parametrize("kind", INDEFINITE)
def test_every_kind_of_indefinite_matrix_has_the_minor_of_lapack(tiles, devices, kind):
    a = np.asarray(INDEFINITE[kind](good()))
    assert_not_positive(failing(a, oc.NotPositiveDefiniteError, tiles=tiles, devices=devices), lapack_minor(a))


@pytest.mark.parametrize("devices", [1, 3])
def test_the_first_minor_is_reported_in_every_run(devices):
    a = good() - 3.0 * np.diag(np.isin(np.arange(N), [45, 62, 83]))
    for _ in range(20):
        assert failing(a, oc.NotPositiveDefiniteError, tiles=4, devices=devices).minor == 46


def test_an_order_of_one():
    for value in (0.0, -4.0):
        assert failing(np.array([[value]]), oc.NotPositiveDefiniteError).minor == 1


@WORKERS
def test_nothing_is_left_of_a_failed_file(finished, tiles, devices):
    a = good()
    a[70, 70] = -1.0
    failing(a, oc.NotPositiveDefiniteError, tiles=tiles, devices=devices, store=finished)


def test_the_memory_of_a_failed_run_is_given_back():
    n, nb = 1000, 250
    a = np.eye(n)
    a[990, 990] = -1.0
    errors, resident = [], []
    for _ in range(6):
        with pytest.raises(oc.NotPositiveDefiniteError) as caught:
            oc.cholesky(a, tile_size=nb, memory_budget="20 MB")
        errors.append(caught.value)
        with open("/proc/self/status", encoding="ascii") as file:
            resident.append(int(dict(line.split(":", 1) for line in file)["RssAnon"].split()[0]) * 1024)
    assert resident[-1] - resident[1] < 8_000_000, "each error that is kept holds memory of its run"


# NaN and infinity


@WORKERS
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_entry_that_is_not_finite_is_found_where_it_is(tiles, devices, value):
    for row, col in PLACES:
        a = good()
        a[row, col] = value
        error = failing(a, oc.errors.NonFiniteError, tiles=tiles, devices=devices)
        assert (error.row, error.col, error.tile) == (row, col, (row // NB, col // NB))
        assert isinstance(error, ValueError) and isinstance(error, oc.OocCholError)
        assert f"A[{row}, {col}]" in str(error) and "mend the entry" in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(("policy", "order", "dtype"), pairwise(list(POLICIES), ["C", "F"], [np.float64, np.float32]))
def test_not_finite_in_every_form_of_array(policy, order, dtype):
    a = np.array(good(), order=order, dtype=dtype)
    a[63, 41] = np.nan
    error = failing(a, oc.errors.NonFiniteError, policy=policy)
    assert (error.row, error.col) == (63, 41)


def test_not_finite_entries_win_over_pivots_that_fail_because_of_them():
    a = good()
    a[25, 25], a[24, 3] = -1.0, np.inf
    error = failing(a, oc.errors.NonFiniteError)
    assert (error.row, error.col) == (24, 3)


def test_finite_entries_whose_sum_overflows_are_finite():
    a = np.diag(np.full(N, 1.7e308)) + np.tril(np.full((N, N), 1e307), -1)
    factor = oc.cholesky(a, tile_size=NB)
    assert np.isfinite(np.asarray(factor)).all()


def test_a_tile_function_that_fills_nothing_meets_the_check():
    def tile(rows, cols, out, stream):
        """Leave ``out`` as it was, as ``out = np.zeros(...)`` does."""

    error = failing(oc.from_function(N, tile), oc.errors.NonFiniteError)
    assert (error.row, error.col) == (0, 0)


def test_nothing_is_left_of_a_file_after_nan(finished):
    a = good()
    a[89, 89] = np.nan
    failing(a, oc.errors.NonFiniteError, store=finished)


# arguments


class Shaped:
    """Something with a shape, a dtype and slices."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, np.dtype(dtype)

    def __getitem__(self, where):
        return np.zeros((1, 1), self.dtype)


REFUSED = {
    "not square": (np.zeros((3, 4)), ValueError, r"shape \(3, 4\), but A is a square matrix"),
    "one-dimensional": (np.zeros(9), ValueError, r"shape \(9,\)"),
    "slices not square": (Shaped((3, 4), float), ValueError, r"shape \(3, 4\)"),
    "text": (np.full((3, 3), "1"), TypeError, r"str32.*A\.astype\(float\)"),
    "rows of two lengths": ([[1.0], [2.0, 3.0]], ValueError, "A is a list that is no matrix"),
    "complex long double": (np.eye(3, dtype=np.clongdouble), TypeError, r"A\.astype\(complex\)"),
    "a number": (4.0, TypeError, "shape, dtype and slicing"),
    "None": (None, TypeError, "shape, dtype and slicing"),
    "a path that is not there": (Path("nowhere.npy"), FileNotFoundError, "nowhere.npy"),
    "a path of another kind": ("a.csv", ValueError, r"does not end in \.npy"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_matrix_that_is_none_is_refused_before_anything_is_touched(finished, kind):
    a, expected, text = REFUSED[kind]
    for call in (lambda: oc.cholesky(a, store=finished), lambda: oc.plan(a)):
        with pytest.raises(expected, match=text):
            call()


OPTIONS = {
    "unknown policy": ({"policy": "lru"}, ValueError, "policy is 'lru'; there are 'planned', 'sync', .* and 'v3'"),
    "unknown device": ({"devices": "tpu:0"}, ValueError, "no device 'tpu:0'; there are host:0 to host:15"),
    "one unknown device": ({"devices": ["host:0", "host:16"]}, ValueError, "no device 'host:16'"),
    "a device twice": ({"devices": ["host:0", "host:0"]}, ValueError, "none twice"),
    "no device": ({"devices": []}, ValueError, "at least one name"),
    "zero devices": ({"devices": 0}, ValueError, "count from 1 to 16"),
    "devices of another type": ({"devices": 1.5}, TypeError, "devices is a float; give a name"),
    "devices True": ({"devices": True}, TypeError, "devices is a bool"),
    "tile size 0": ({"tile_size": 0}, ValueError, "at least 1 row"),
    "tile size of another type": ({"tile_size": 64.0}, TypeError, "give an int, or None"),
    "unknown objective": ({"objective": "watts"}, ValueError, "there are 'seconds' and 'bytes'"),
    "budget without sense": ({"memory_budget": "a lot"}, ValueError, "write for example 500000000"),
    "budget of zero": ({"memory_budget": 0}, ValueError, "more than zero bytes"),
    "budget of another type": ({"memory_budget": 1.5}, TypeError, "give bytes as an int"),
    "store in no folder": ({"store": "nowhere/at/all/L.ooc"}, oc.errors.MissingFolderError, "there is no folder nowhere/at/all"),
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_an_option_without_sense_says_what_there_is(kind):
    options, expected, text = OPTIONS[kind]
    with pytest.raises(expected, match=text):
        oc.cholesky(np.eye(40), **options)
    options = {name: value for name, value in options.items() if name != "store"}
    if options:
        with pytest.raises(expected, match=text):
            oc.plan(40, **options)


CHOLESKY_ONLY = {
    "checkpoint without a file": ({"checkpoint": True}, ValueError, "give store=path, or checkpoint=path"),
    "unknown engine": ({"fp64": "fast"}, ValueError, "there are 'auto', 'native' and 'residue'"),
    "two places for L": ({"store": "L.ooc", "overwrite": True}, ValueError, "give one of them"),
    "progress of another type": ({"progress": "yes"}, TypeError, "give True, False or a callable"),
    "host budget without sense": ({"host_budget": "9 elephants"}, ValueError, "host_budget"),
}


@pytest.mark.parametrize("kind", CHOLESKY_ONLY)
def test_what_is_not_there_says_so(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options, expected, text = CHOLESKY_ONLY[kind]
    with pytest.raises(expected, match=text):
        oc.cholesky(np.eye(40), **options)
    assert os.listdir(tmp_path) == []


def test_engines_that_are_there():
    expected = np.asarray(oc.cholesky(np.eye(5)))
    assert np.array_equal(np.asarray(oc.cholesky(np.eye(5), fp64="native")), expected)
    assert np.array_equal(np.asarray(oc.cholesky(np.eye(5), precision_threshold=None, fp64="auto")), expected)


# memory


@EVERY_POLICY
@pytest.mark.parametrize(("n", "nb"), [(1, 1), (1, 500), (40, 20), (90, 20), (1000, 300)])
def test_a_budget_that_is_too_small_says_how_much_is_needed(finished, n, nb, policy):
    a = np.eye(n)
    error = None
    for budget in (1, 4095, budget_of(3, n, nb) - 1 if n > nb else 4095):
        with pytest.raises(oc.BudgetError, match="or more") as caught:
            oc.cholesky(a, tile_size=nb, memory_budget=budget, policy=policy, store=finished)
        error = caught.value
        assert error.budget_bytes == budget < error.needed_bytes
        assert error.what == "memory_budget of host:0"
        assert isinstance(error, MemoryError) and isinstance(error, oc.OocCholError)
        again = pickle.loads(pickle.dumps(error))
        assert (again.needed_bytes, again.budget_bytes, str(again)) == (error.needed_bytes, error.budget_bytes, str(error))
    assert np.array_equal(np.asarray(oc.cholesky(a, tile_size=nb, memory_budget=error.needed_bytes, policy=policy)), a)


def test_no_room_for_l_in_memory_says_how_much_is_needed(tmp_path):
    a = FAMILIES["exponential"](N)
    with pytest.raises(oc.BudgetError, match=r"host_budget for L.*store=.*overwrite=True") as caught:
        oc.cholesky(a, tile_size=NB, host_budget="10 kB")
    error = caught.value
    assert error.budget_bytes == 10_000 < error.needed_bytes
    assert error.needed_bytes == memory_store(oc.plan(N, tile_size=NB).grid).nbytes
    oc.cholesky(a, tile_size=NB, host_budget=error.needed_bytes)
    oc.cholesky(a, tile_size=NB, host_budget="10 kB", store=tmp_path / "L.ooc").close()
    oc.cholesky(a.copy(), tile_size=NB, host_budget="10 kB", overwrite=True)


def test_a_budget_beyond_the_free_memory_is_refused_before_the_run(finished, monkeypatch):
    monkeypatch.setattr(host, "free_host_bytes", lambda: budget_of(9, N, NB))
    for devices in (1, 3):
        error = failing(good(), oc.BudgetError, tiles=12, devices=devices, store=finished)
        assert error.what == "arena of host:0" and "give a smaller memory_budget" in str(error)
        assert error.budget_bytes < error.needed_bytes <= budget_of(12, N, NB)


# overwrite


def test_overwrite_is_refused_where_it_cannot_be(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(4))
    read_only = np.eye(4)
    read_only.flags.writeable = False
    for a, text in (
        (tmp_path / "a.npy", "A is a PosixPath; give a writable float64 array"),
        (oc.from_function(4, lambda rows, cols, out, stream: None), "A is a FunctionSource"),
        (np.eye(4, dtype=np.float32), "float64 array only"),
    ):
        with pytest.raises(TypeError, match=text):
            oc.cholesky(a, overwrite=True)
    with pytest.raises(ValueError, match="read-only"):
        oc.cholesky(read_only, overwrite=True)
    assert np.array_equal(read_only, np.eye(4))


def test_a_failed_overwrite_leaves_the_upper_triangle_alone():
    a = good()
    a[70, 70] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError):
        oc.cholesky(a, tile_size=NB, overwrite=True)
    assert np.isnan(a[np.triu_indices(N, 1)]).all()


# what the user brings fails


class BoomError(Exception):
    """The user's own error."""


FULL = FAMILIES["exponential"](N)


def raising_at(row: int, col: int, error: BaseException):
    """A matrix whose tile that starts at ``(row, col)`` cannot be made."""

    def tile(rows, cols, out, stream):
        if (rows.start, cols.start) == (row, col):
            raise error
        out[...] = FULL[rows.start : rows.stop, cols.start : cols.stop]

    return oc.from_function(N, tile)


@WORKERS
@EVERY_POLICY
def test_the_error_of_a_tile_function_arrives_as_it_is(finished, tiles, devices, policy):
    for bad in ((0, 0), (40, 20), (80, 60), (80, 80)):
        error = BoomError()
        source = raising_at(*bad, error)
        assert failing(source, BoomError, tiles=tiles, devices=devices, policy=policy, store=finished) is error


@WORKERS
@pytest.mark.parametrize("kind", [ZeroDivisionError, MemoryError, SystemExit, StopIteration, KeyboardInterrupt])
def test_any_kind_of_error_arrives_as_it_is(finished, tiles, devices, kind):
    error = kind("the user's own")
    assert failing(raising_at(40, 20, error), kind, tiles=tiles, devices=devices, store=finished) is error


@pytest.mark.parametrize("row", [1, 3])
def test_the_error_of_a_tile_function_is_not_hidden_by_those_that_follow_it(monkeypatch, row):
    """1. A tile fails. 2. Its device is stopped, and drops writes that another device waits for. 3. That one fails, too."""
    abort, write, first = HostDevice.abort, MemoryStore.write, []

    def slow_abort(device):
        abort(device)
        if not first:
            first.append(device.name)
            time.sleep(0.2)  # time for the other device to come first

    monkeypatch.setattr(HostDevice, "abort", slow_abort)
    monkeypatch.setattr(MemoryStore, "write", lambda store, index, data: (time.sleep(0.02), write(store, index, data)))
    error = BoomError()
    assert failing(raising_at(row * NB, row * NB, error), BoomError, devices=2) is error


def test_a_tile_function_that_returns_a_tile_is_told_to_fill_it():
    source = oc.from_function(N, lambda rows, cols, out, stream: np.eye(len(rows), len(cols)))
    assert "fill its third argument in place" in str(failing(source, TypeError))


class Failing:
    """An array behind slices that fails at one of them."""

    def __init__(self, a, at, error):
        self.shape, self.dtype, self._a, self._left, self._error = a.shape, a.dtype, a, at, error

    def __getitem__(self, where):
        self._left -= 1
        if self._left == 0:
            raise self._error
        return self._a[where]


@WORKERS
@pytest.mark.parametrize("at", [2, 9, 16])
def test_a_source_that_fails_while_it_is_read(finished, tiles, devices, at):
    a = good()
    error = OSError(errno.EIO, "Input/output error")
    found = failing(Failing(a, at, error), oc.errors.TierError, tiles=tiles, devices=devices, store=finished)
    assert found.__cause__ is error and "Input/output error" in str(found)
    error = BoomError()
    assert failing(Failing(a, at, error), BoomError, tiles=tiles, devices=devices, store=finished) is error


class Cut(AbstractSource):
    """A file that becomes shorter at its fifth read."""

    def __init__(self, path):
        self._source, self._path, self._left = as_source(path), path, 5
        self.name, self.n, self.bytes_per_entry = "file", self._source.n, 8

    def _read(self, rows, cols, out):
        self._left -= 1
        if self._left == 0:
            os.truncate(self._path, 2000)
        self._source.read_block(rows, cols, out)

    def close(self):
        self._source.close()


@WORKERS
def test_a_file_that_is_cut_while_it_is_read(finished, tmp_path, tiles, devices):
    np.save(tmp_path / "a.npy", good())
    error = failing(Cut(tmp_path / "a.npy"), oc.errors.TierError, tiles=tiles, devices=devices, store=finished)
    assert "a.npy ends before byte" in str(error) and "became shorter" in str(error)


@pytest.mark.parametrize(("where", "policy", "code"), pairwise(MEMORY_AND_WORKERS, list(POLICIES), [errno.ENOSPC, errno.EIO]))
def test_a_store_that_fails_while_it_is_written(finished, monkeypatch, where, policy, code):
    tiles, devices = where
    for at in (1, 7, 15):
        failures = fail_at(monkeypatch, at, code)
        error = failing(good(), oc.errors.TierError, tiles=tiles, devices=devices, policy=policy, store=finished)
        monkeypatch.undo()
        assert failures == [at]
        advice = "no room for" if code == errno.ENOSPC else "check the disk"
        assert advice in str(error) and "L.ooc.partial" in str(error) and os.strerror(code) in str(error)


def fail_at(monkeypatch, at, code):
    """Let the ``at``-th write of a tile fail, as a full disk would; the result is filled with the number when it does."""
    write, count, failures = os.pwrite, [0], []

    def pwrite(descriptor, data, offset):
        count[0] += offset > 0  # the header is written at 0
        if count[0] == at and offset > 0:
            failures.append(at)
            raise OSError(code, os.strerror(code))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return failures


def test_a_store_that_cannot_be_completed(finished, monkeypatch):
    def fsync(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    assert "the finished factor" in str(failing(good(), oc.errors.TierError, store=finished))


def test_a_store_that_another_run_is_writing(finished):
    def tile(rows, cols, out, stream):
        out[...] = FULL[rows.start : rows.stop, cols.start : cols.stop]
        if rows.start == 40 == cols.start:
            errors.append(second())

    def second():
        try:
            oc.cholesky(FULL, tile_size=NB, store=finished)
        except oc.errors.TierError as error:
            return error

    errors, keep = [], finished.read_bytes()
    first = oc.cholesky(oc.from_function(N, tile), tile_size=NB, store=finished)
    assert np.array_equal(np.asarray(first), np.asarray(oc.cholesky(FULL, tile_size=NB)))
    first.close()
    assert len(errors) == 1 and "another run is writing this file" in str(errors[0])
    finished.write_bytes(keep)


@pytest.mark.parametrize("at", [1, 3])
def test_a_progress_function_that_raises(finished, at):
    calls = []

    def progress(done, total, seconds):
        calls.append(done)
        if len(calls) == at:
            raise error

    error = BoomError()
    for devices in (1, 3):
        calls.clear()
        found = failing(good(), BoomError, tiles=4, devices=devices, progress=progress, store=finished)
        assert found is error and len(calls) == at


# interruption


def test_an_interrupt_ends_a_run_at_once(finished):
    made, interrupted = [], []

    def tile(rows, cols, out, stream):
        made.append((rows.start, cols.start))
        out[...] = FULL[rows.start : rows.stop, cols.start : cols.stop]
        if rows.start >= 40:
            if not interrupted:
                interrupted.append(len(made))
                os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C: the main thread waits for the run meanwhile
            time.sleep(0.1)  # on a busy machine it may take some of these until the main thread gets a core

    failing(oc.from_function(N, tile), KeyboardInterrupt, store=finished)
    assert len(made) < NT * (NT + 1) // 2, f"the run went on from tile {interrupted} to its end"


@pytest.mark.parametrize("devices", [1, 3])
def test_a_second_interrupt_while_the_first_is_handled_leaves_no_thread_either(devices):
    begun = threading.Event()

    def tile(rows, cols, out, stream):
        out[...] = FULL[rows.start : rows.stop, cols.start : cols.stop]
        if rows.start == 40 and not begun.is_set():
            begun.set()
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        oc.cholesky(oc.from_function(N, tile), tile_size=NB, devices=devices)
    deadline = time.monotonic() + 30.0  # the operation that runs is not cut short
    while left := set(threading.enumerate()) - before:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


@pytest.mark.parametrize("seconds", [0.0, 0.02])
@pytest.mark.usefixtures("processes")
def test_ctrl_c_on_the_command_line(finished, tmp_path, seconds):
    n, nb = 1000, 20  # fifty tile rows, three tiles of memory: a run of some seconds
    path = tmp_path / "a.npy"
    np.save(path, np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 50.0))
    words = ["factor", str(path), "--store", str(finished), "--tile-size", str(nb), "--memory-budget", "20 kB", "--quiet"]
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            wait_for(Path(f"{finished}.partial"), process)
            time.sleep(seconds)  # the run takes some: whenever the signal comes, the promise is the same
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=50)
        finally:
            process.kill()
    (advice, last) = err.splitlines()
    assert (process.returncode, out, last) == (130, "", "ooc-chol: interrupted")
    assert advice.startswith("ooc_chol: tiles of 20 in a memory_budget of 20 kB make"), "told before it runs"


def wait_for(path: Path, process: subprocess.Popen) -> None:
    """Until the run has created its file."""
    deadline = time.monotonic() + 40.0
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.0005)
