"""A from Zarr, by path, URL or object: the same bits as from an array, and an error for what holds no one matrix."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import numpy as np
import obstore
import pytest
import zarr

import ooc_chol as oc
from tests.host.golden import cauchy
from tests.inside.memory import as_source

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "zarr_threads")]

N = 100
A = cauchy(N, 0.05, 2, 1e-3)
PLAIN = {"tile_size": 32, "devices": "host:0", "memory_budget": "200 KiB"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in with A in several forms, and nothing else in the memory of fsspec."""
    monkeypatch.chdir(tmp_path)
    fsspec.filesystem("memory").store.clear()
    zarr.create_array(store="A.zarr", data=A, chunks=(33, 41))
    zarr.create_array(store="two.zarr", data=A, chunks=(50, 50), zarr_format=2)
    group = zarr.create_group("G.zarr")
    group.create_array("a", data=A)
    group.create_array("coordinate", data=A[0])
    zarr.create_array(store="memory://bucket/A", data=A, chunks=(32, 32))
    return tmp_path


def in_obstore():
    """A in a store of obstore."""
    store = zarr.storage.ObjectStore(obstore.store.MemoryStore())
    return zarr.create_array(store=store, data=A, chunks=(32, 32))


FORMS = {
    "path": lambda: "A.zarr",
    "slash": lambda: "A.zarr/",
    "Path": lambda: Path("A.zarr"),
    "version 2": lambda: "two.zarr",
    "url": lambda: f"file://{Path('A.zarr').absolute()}",
    "array of a group": lambda: "G.zarr/a",
    "only matrix of a group": lambda: "G.zarr",
    "fsspec": lambda: "memory://bucket/A",
    "array": lambda: zarr.open_array("A.zarr", mode="r"),
    "group": lambda: zarr.open_group("G.zarr", mode="r"),
    "obstore": in_obstore,
}


@pytest.mark.parametrize(
    ("form", "lower"),
    [
        *((form, True) for form in FORMS),
        *(pytest.param(form, False, marks=() if form in ("path", "obstore") else pytest.mark.thorough) for form in FORMS),
    ],
)
def test_the_factor_has_the_bits_of_an_arrays(form, lower):
    a = FORMS[form]()
    with oc.cholesky(a, lower=lower, **PLAIN) as factor, oc.cholesky(A, lower=lower, **PLAIN) as right:
        assert np.array_equal(np.asarray(factor), np.asarray(right))
        assert factor.residual(a).max_scaled_over_sqrt_n <= 4


@pytest.mark.parametrize("form", ["path", "fsspec", "array", "array of a group"])
def test_a_source_is_pickled_without_its_numbers(form):
    text = pickle.dumps(as_source(FORMS[form]()))
    assert len(text) < 4000 < A.nbytes
    block = np.empty((10, 20))
    pickle.loads(text).read_block(range(70, 80), range(20), block)
    assert np.array_equal(block, A[70:80, :20])


@pytest.mark.parametrize("dtype", ["float32", "int64", "complex128", "bool"])
def test_types_are_those_of_arrays(dtype):
    a = (A if dtype != "bool" else np.eye(N)).astype(dtype)
    zarr.create_array(store="typed.zarr", data=a, chunks=(40, 40))
    with oc.cholesky("typed.zarr", lower=True, **PLAIN) as factor, oc.cholesky(a, lower=True, **PLAIN) as right:
        assert np.array_equal(np.asarray(factor), np.asarray(right)) and factor.dtype == right.dtype


def test_what_is_no_matrix_is_refused():
    zarr.open_group("G.zarr").create_array("b", data=A[:10])
    listed = r"G.zarr is a group of Zarr that has the arrays a \(100, 100\), b \(10, 100\), coordinate \(100,\); name one"
    with pytest.raises(ValueError, match=listed):
        oc.cholesky("G.zarr")
    with pytest.raises(ValueError, match=r"has shape \(10, 100\), but A is a square matrix"):
        oc.cholesky("G.zarr/b")
    zarr.create_group("empty.zarr")
    with pytest.raises(ValueError, match="has no arrays"):
        oc.cholesky("empty.zarr")
    zarr.create_array(store="times.zarr", data=np.zeros((4, 4), "datetime64[s]"))
    with pytest.raises(TypeError, match="datetime64"):
        oc.cholesky("times.zarr")
    for name in ("none.zarr", "memory://bucket/none", "A.zarr/none"):
        with pytest.raises(FileNotFoundError, match="there is no array or group of Zarr"):
            oc.cholesky(name)
    Path("A.zarr/zarr.json").write_text("{")
    with pytest.raises(oc.errors.TierError, match=r"A.zarr cannot be opened as Zarr"):
        oc.cholesky("A.zarr")


def test_a_factor_is_no_matrix():
    oc.cholesky(A, store="L.zarr", **PLAIN).close()
    with pytest.raises(ValueError, match=r"L.zarr is a factor of ooc_chol, not a matrix: open it with ooc_chol.load"):
        oc.cholesky("L.zarr")


def test_a_chunk_that_cannot_be_read_is_named():
    a = zarr.create_array(store="crc.zarr", data=A, chunks=(50, 50), compressors=[zarr.codecs.Crc32cCodec()])
    chunk = Path("crc.zarr/c/1/0")
    data = bytearray(chunk.read_bytes())
    data[9] ^= 1
    chunk.write_bytes(data)
    for form in (a, "crc.zarr"):
        with pytest.raises(
            oc.errors.TierError, match=r"crc.zarr could not be read in \[\d+:\d+, \d+:\d+\] \(ValueError: .*checksum"
        ):
            oc.cholesky(form, lower=True, **PLAIN)


@pytest.mark.parametrize(
    ("a", "store"),
    [
        ("A.zarr", "A.zarr"),
        ("G.zarr/a", "G.zarr"),
        ("A.zarr", "A.zarr/c"),
        ("A.zarr", "A.zarr/L.ooc"),
        ("memory://bucket/A", "memory://bucket/A"),
        ("memory://bucket/A", "memory://bucket"),
    ],
)
def test_a_is_never_the_target(a, store, folder):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    remote = dict(fsspec.filesystem("memory").store)
    with pytest.raises(oc.errors.OutputError, match="read as A"):
        oc.cholesky(a, store=store, replace=True, **PLAIN)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert dict(fsspec.filesystem("memory").store) == remote
