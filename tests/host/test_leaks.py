"""What a run holds is given back: after each fault of the disk, and of factors that nobody closes."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import warnings
import weakref

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import file_store
from tests.host.escalation_cases import TWO_ROWS
from tests.host.matrices import FAMILIES
from tests.host.runs import COMMAND, ENVIRONMENT
from tests.inside.dense import factoring
from tests.inside.dense import file as store_module
from tests.inside.files import files as store_io

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 120, 32
A = FAMILIES["exponential"](N)
THRESHOLD = pytest.mark.parametrize("threshold", [None, 1e-4])


def descriptors() -> dict[str, str]:
    """The open descriptors of this process, by number, and what they lead to."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one that listed the folder
            continue
    return found


def failing(original, number: int, code: int):
    """``original``, but its call ``number``, counted from one, raises the error ``code``."""
    calls = 0

    def call(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == number:
            raise OSError(code, os.strerror(code))
        return original(*arguments, **options)

    return call


#: Faults while a factor is made durable: the tiles' flush, the header's, the name's, the folder's, the header itself.
FAULTS = {
    "flush of the tiles": (os, "fsync", 1),
    "flush of the header": (os, "fsync", 2),
    "rename": (os, "replace", 1),
    "flush of the folder": (os, "fsync", 3),
    "last header": (store_module, "write_fully", None),
}


def inject(patch: pytest.MonkeyPatch, fault: str) -> None:
    """Let ``fault`` happen once."""
    where, name, number = FAULTS[fault]
    if number is not None:
        patch.setattr(where, name, failing(getattr(where, name), number, errno.EIO))
        return

    def write(descriptor, buffer, offset, path):
        if offset == 0 and os.pread(descriptor, 1, 0) != b"\0":  # the second header, over the first
            raise store_io.write_error(path, "the header", OSError(errno.EIO, os.strerror(errno.EIO)))
        store_io.write_fully(descriptor, buffer, offset, path)

    patch.setattr(where, name, write)


@THRESHOLD
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_of_the_disk_the_same_call_works(tmp_path, fault, threshold):
    before = descriptors()
    with pytest.MonkeyPatch.context() as patch:
        inject(patch, fault)
        with pytest.raises(oc.errors.TierError, match=r"L\.factor"):
            oc.cholesky(A, precision_threshold=threshold, tile_size=NB, store=tmp_path / "L.factor")
    assert descriptors() == before, "a descriptor is left"
    assert not (tmp_path / "L.factor.partial").exists()
    with oc.cholesky(A, precision_threshold=threshold, tile_size=NB, store=tmp_path / "L.factor") as factor:
        expected = np.asarray(oc.cholesky(A, precision_threshold=threshold, tile_size=NB))
        assert np.array_equal(np.asarray(factor), expected)
    assert descriptors() == before
    assert os.listdir(tmp_path) == ["L.factor"]


@THRESHOLD
@pytest.mark.parametrize("step", ["FactorReport", "CholeskyFactor", "_trace_of"])
def test_what_fails_between_the_run_and_the_factor_leaves_no_descriptor(tmp_path, monkeypatch, step, threshold):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(factoring, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            oc.cholesky(A, precision_threshold=threshold, tile_size=NB, store=tmp_path / "L.factor", trace=True)
    assert descriptors() == before
    oc.cholesky(A, precision_threshold=threshold, tile_size=NB, store=tmp_path / "L.factor").close()


@THRESHOLD
def test_memory_that_many_take_is_free_again_after_a_failure(monkeypatch, threshold):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with oc.HostMemory() as memory:
        with monkeypatch.context() as patch:
            patch.setattr(factoring, "FactorReport", interrupt)
            with pytest.raises(KeyboardInterrupt) as caught:
                oc.cholesky(A, precision_threshold=threshold, tile_size=NB, store=memory)
        # The error still holds the frames of the run, as it does for a user who looks at it.
        assert caught.tb is not None
        oc.cholesky(A, precision_threshold=threshold, tile_size=NB, store=memory).close()


def test_saving_fails_at_the_flush_and_succeeds_again(tmp_path, monkeypatch):
    factor, before = oc.cholesky(A, tile_size=NB), descriptors()
    with monkeypatch.context() as patch:
        inject(patch, "flush of the tiles")
        with pytest.raises(oc.errors.TierError, match=r"L\.factor"):
            factor.save(tmp_path / "L.factor")
    assert descriptors() == before and os.listdir(tmp_path) == []
    factor.save(tmp_path / "L.factor")
    assert descriptors() == before


# factors that nobody closes


def made_in_a_file(path):
    return oc.cholesky(A, tile_size=NB, store=path)


def made_in_mixed_precision(path):
    return oc.cholesky(A, precision_threshold=1e-4, tile_size=NB, store=path)


def loaded(path):
    oc.cholesky(A, tile_size=NB, store=path).close()
    return oc.load(path)


IN_FILES = pytest.mark.parametrize("make", [made_in_a_file, made_in_mixed_precision, loaded])


@IN_FILES
def test_a_factor_that_nobody_closes_warns_and_gives_its_descriptor_back(tmp_path, make):
    before, path = descriptors(), tmp_path / "L.factor"
    for _ in range(3):
        factor = make(path)
        assert len(descriptors()) == len(before) + 1
        with pytest.warns(ResourceWarning, match=r"L\.factor.*close") as caught:
            del factor
        assert len(caught) == 1
        assert descriptors() == before
    assert path.exists()


@IN_FILES
def test_a_factor_that_is_closed_does_not_warn(tmp_path, make):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with make(tmp_path / "L.factor") as factor:
            factor.logdet()
        del factor
        factor = make(tmp_path / "L.factor")
        factor.close()
        factor.close()
        del factor
    assert caught == []


def test_a_store_that_nobody_completes_warns_and_is_unlocked(tmp_path):
    before = descriptors()
    factor = oc.cholesky(A, tile_size=NB)
    store = file_store(tmp_path / "L.factor", factor.grid)
    with pytest.warns(ResourceWarning, match=r"L\.factor\.partial"):
        del store
    assert descriptors() == before
    factor.save(tmp_path / "L.factor")


@pytest.mark.parametrize("threshold", [None, 1e-4])
@pytest.mark.parametrize("place", ["memory", "file", "host memory", "over A"])
def test_a_factor_is_freed_without_the_garbage_collector(tmp_path, place, threshold):
    if place == "over A" and threshold is not None:
        return  # that is refused
    memory = oc.HostMemory()
    store = {"memory": None, "file": tmp_path / "L.factor", "host memory": memory, "over A": None}[place]
    gc.collect()
    gc.disable()
    try:
        factor = oc.cholesky(
            A.copy(), precision_threshold=threshold, tile_size=NB, store=store, overwrite=place == "over A", trace=True
        )
        factor.solve(np.ones(N))
        factor.inverse_diagonal()
        held = weakref.ref(factor._store)
        if place == "file":
            factor.close()
        del factor
        assert held() is None, "a cycle holds the store"
    finally:
        gc.enable()


def test_a_factor_of_several_attempts_is_freed_without_the_garbage_collector(tmp_path):
    gc.collect()
    gc.disable()
    try:
        factor = TWO_ROWS.factor()
        assert len(factor.report.escalations) == 2, "the matrix is to fail in narrow formats"
        held = weakref.ref(factor._store)
        del factor
        assert held() is None, "a cycle holds the store"
    finally:
        gc.enable()


#: What ordinary programs do, all closed in the one way or the other.
ORDINARY = """
import numpy as np, ooc_chol as oc
a = np.load("a.npy")
for threshold in (None, 1e-4):
    for store in (None, "L.factor"):
        for matrix in (a, "a.npy", np.load("a.npy", mmap_mode="r")):
            with oc.cholesky(matrix, precision_threshold=threshold, tile_size=32, store=store, trace=True) as factor:
                factor.solve(np.ones(len(a)), refine=True, a=a)
                factor.residual("a.npy")
                factor.save("M.factor")
            loaded = oc.load("M.factor")
            loaded.logdet()
            loaded.close()
        try:
            oc.cholesky(-a, precision_threshold=threshold, store=store)
        except oc.NotPositiveDefiniteError:
            pass
with oc.HostMemory() as memory:
    oc.cholesky(a, store=memory).close()
kept = oc.cholesky(a)
"""


@pytest.mark.usefixtures("processes")
def test_ordinary_programs_warn_of_nothing_in_development_mode(tmp_path):
    np.save(tmp_path / "a.npy", A)
    command = [COMMAND[0], "-X", "dev", "-W", "error", "-c", ORDINARY]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
