"""Chunks that are missing: of two places of a symmetric matrix the one that is there tells that the other was lost."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import h5py
import numpy as np
import obstore
import pytest
import zarr

import ooc_chol as oc
from tests.host.golden import cauchy
from tests.inside.memory import as_source, find_asymmetry

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "zarr_threads", "folder")]

N = 150
A = cauchy(N, 0.05, 2, 1e-3)
COMPLEX = A * np.outer(phases := np.exp(0.3j * np.arange(N)), phases.conj())
PLAIN = {"tile_size": 32, "devices": "host:0"}
#: Chunks that divide the diagonal evenly, and such that do not.
SHAPES = ((32, 32), (50, 31), (31, 50), (150, 10), (7, 150))


def without(a: np.ndarray, shape: tuple[int, int], lost: list[tuple[int, int]]):
    """A, and its chunks but those that are lost: what is written of it and where."""
    for i in range(-(-N // shape[0])):
        for j in range(-(-N // shape[1])):
            if (i, j) not in lost:
                yield np.s_[i * shape[0] : min((i + 1) * shape[0], N), j * shape[1] : min((j + 1) * shape[1], N)]


def _zarr(store, a, shape, lost, **options):
    array = zarr.create_array(store=store, shape=a.shape, dtype=a.dtype, chunks=shape, **options)
    for place in without(a, array.shards or shape, lost):
        array[place] = a[place]
    return array


def _local(a, shape, lost):
    _zarr("A.zarr", a, shape, lost)
    return "A.zarr"


def _in_group(a, shape, lost):
    zarr.create_group("G.zarr")
    _zarr("G.zarr/a", a, shape, lost)
    return "G.zarr"


def _memory(a, shape, lost):
    _zarr("memory://x/A", a, shape, lost)
    return "memory://x/A"


def _zipped(a, shape, lost):
    with zarr.storage.ZipStore("A.zip", mode="w") as store:
        _zarr(store, a, shape, lost)
    return zarr.open_array(zarr.storage.ZipStore("A.zip", mode="r"), mode="r")


def _hdf5(a, shape, lost):
    with h5py.File("A.h5", "w") as file:
        data = file.create_dataset("a", a.shape, a.dtype, chunks=shape)
        for place in without(a, shape, lost):
            data[place] = a[place]
    return h5py.File("A.h5")["a"]


#: Where chunks may be: what writes A without some, and gives what is factored.
PLACES = {
    "local": _local,
    "version 2": lambda a, shape, lost: _zarr("two.zarr", a, shape, lost, zarr_format=2),
    "shards": lambda a, shape, lost: _zarr("A.zarr", a, (16, 16), lost, shards=(32, 32)),
    "group": _in_group,
    "fsspec": _memory,
    "obstore": lambda a, shape, lost: _zarr(zarr.storage.ObjectStore(obstore.store.MemoryStore()), a, shape, lost),
    "zip": _zipped,
    "hdf5": _hdf5,
}


def cases():
    """All places with chunks of one shape, and all shapes in two places."""
    return [*((place, SHAPES[0]) for place in PLACES), *((place, shape) for place in ("local", "hdf5") for shape in SHAPES[1:])]


def chunk_of(row: int, col: int, shape: tuple[int, int]) -> tuple[int, int]:
    return row // shape[0], col // shape[1]


@pytest.mark.parametrize("a", [A, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize(("place", "shape"), cases())
def test_a_chunk_that_is_lost_below_the_diagonal_is_refused(place, shape, a):
    lost = chunk_of(140, 40, shape)
    source = PLACES[place](a, shape, [lost])
    with pytest.raises(
        oc.errors.TierError, match=r"A\[\d+, \d+\] is 0(\+0j)?, since the chunk .* is missing, but A\[\d+, \d+\] is "
    ) as caught:
        oc.cholesky(source, **PLAIN)
    row, col = (int(word) for word in str(caught.value).partition("[")[2].partition("]")[0].split(","))
    assert row > col and chunk_of(row, col, shape) == lost


@pytest.mark.parametrize(("place", "shape"), cases())
def test_nothing_is_said_of_a_matrix_that_is_whole(place, shape):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with oc.cholesky(PLACES[place](A, shape, []), **PLAIN) as factor, oc.cholesky(A, **PLAIN) as right:
            assert factor.logdet() == right.logdet()


@pytest.mark.parametrize(("place", "shape"), [case for case in cases() if case[1][0] == case[1][1]])
def test_of_a_chunk_that_is_lost_above_the_diagonal_there_is_a_warning(place, shape):
    source = PLACES[place](A, shape, [chunk_of(40, 140, shape)])
    with (
        pytest.warns(oc.errors.AsymmetryWarning, match=r"A\[128, 32\] is .*, but A\[32, 128\] is 0: "),
        oc.cholesky(source, **PLAIN) as factor,
    ):
        assert factor.logdet() == oc.cholesky(A, **PLAIN).logdet()


@pytest.mark.parametrize("place", PLACES)
def test_two_chunks_that_are_lost_are_zeros(place):
    blocks = [(4, 1), (1, 4)]
    right = A.copy()
    right[128:, 32:64] = 0
    right[32:64, 128:] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with oc.cholesky(PLACES[place](A, SHAPES[0], blocks), **PLAIN) as factor, oc.cholesky(right, **PLAIN) as expected:
            assert factor.logdet() == expected.logdet()


@pytest.mark.parametrize("place", PLACES)
def test_a_triangle_that_is_asked_for_may_be_alone(place):
    lower = [(i, j) for i in range(5) for j in range(5) if i < j]
    with oc.cholesky(PLACES[place](A, SHAPES[0], lower), lower=True, **PLAIN) as factor:
        assert factor.logdet() == oc.cholesky(A, **PLAIN).logdet()


def test_zeros_that_were_written_are_no_loss():
    """Zarr leaves out chunks of zeros: of one that was written all the same the mirror image may be missing."""
    a = np.where(np.subtract.outer(np.arange(N) // 32, np.arange(N) // 32) ** 2 > 1, 0.0, A)
    array = zarr.create_array(store="A.zarr", shape=a.shape, dtype=a.dtype, chunks=(32, 32), config={"write_empty_chunks": True})
    for place in without(a, (32, 32), [(4, 1), (0, 3)]):
        array[place] = a[place]
    assert Path("A.zarr/c/1/4").exists() and not Path("A.zarr/c/4/1").exists()
    assert find_asymmetry(as_source("A.zarr")) is None


def test_the_fill_value_is_what_a_missing_chunk_has():
    a = np.full((N, N), 2.5) + 200 * np.eye(N)
    array = _zarr("A.zarr", a, (32, 32), [(4, 1)], fill_value=2.5)
    assert find_asymmetry(as_source(array)) is None
    array = _zarr("B.zarr", a, (32, 32), [(4, 1)], fill_value=-1.0)
    with pytest.raises(
        oc.errors.TierError, match=r"A\[128, 32\] is -1, since the chunk c/4/1 .* is missing, but A\[32, 128\] is 2.5"
    ):
        find_asymmetry(as_source(array))


@pytest.mark.parametrize(("make", "what"), [
    (lambda path: os.mkfifo(path), "is a pipe, not a file"),
    (lambda path: path.symlink_to("/dev/zero"), "is a device, not a file"),
    (lambda path: path.mkdir(), "is a folder, not a file"),
    (lambda path: path.symlink_to("nothing-there"), "is a link to nothing"),
    (lambda path: (path.touch(), os.truncate(path, 1 << 43)), "a file of its kind has at most"),
    (lambda path: path.write_bytes(b""), "could not be read"),
    (lambda path: path.write_bytes(b"no chunk"), "could not be read"),
])  # fmt: skip
@pytest.mark.parametrize("is_open", [False, True])
def test_a_chunk_that_is_no_file_is_refused_at_once(make, what, is_open):
    _zarr("A.zarr", A, (32, 32), [])
    chunk = Path("A.zarr/c/4/1")
    chunk.unlink()
    make(chunk)
    with pytest.raises(oc.errors.TierError, match=what):
        oc.cholesky(zarr.open_array("A.zarr", mode="r") if is_open else "A.zarr", lower=True, **PLAIN)
