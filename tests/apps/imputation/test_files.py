"""Tensors and masks in files: what is written is read again, and what is no tensor is refused with words."""

from __future__ import annotations

import itertools
import os
import zipfile

import numpy as np
import pytest
from scipy.io import netcdf_file

import ooc_chol as oc
from ooc_chol.apps.imputation import observed_mask, read_graph, read_mask, read_tensor, write_tensor
from tests.inside.imputation import files

pytestmark = pytest.mark.host

SHAPE = (4, 3, 2)


def numbers(dtype="float32"):
    return np.random.default_rng(0).standard_normal(SHAPE).astype(dtype)


@pytest.mark.parametrize("ending", ["npy", "npz", "nc", "nc3", "cdf"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_written_is_read_again(tmp_path, ending, dtype):
    path, mask = tmp_path / f"a.{ending}", np.array([True, False, True, True])
    write_tensor(path, numbers(dtype), mask=mask)
    found = read_tensor(path)
    assert found.tensor.dtype == dtype and np.array_equal(found.tensor, numbers(dtype)) and found.name == "tensor"
    assert ending != "npz" or np.array_equal(found.mask, mask)
    assert isinstance(found.tensor, np.memmap) == (ending == "npy")


def test_netcdf_keeps_its_names_and_says_what_was_observed(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    given, mask = tmp_path / "given.nc", np.ones(SHAPE, bool)
    with netCDF4.Dataset(given, "w") as content:
        for name, size in zip(("station", "hour", "day"), SHAPE, strict=True):
            content.createDimension(name, size)
        made = content.createVariable("t2m", "i2", ("station", "hour", "day"), fill_value=-999)
        made.scale_factor, made.units = 0.5, "K"
        made.set_auto_maskandscale(False)
        raw = np.arange(24, dtype="i2").reshape(SHAPE)
        raw[2] = -999
        made[...] = raw
    found = read_tensor(given)
    assert np.isnan(found.tensor[2]).all() and found.tensor[1, 0, 1] == 3.5 and found.axes == ("station", "hour", "day")
    assert observed_mask(found.tensor).tolist() == [True, True, False, True]
    mask[2] = False
    for _ in range(2):  # one of ours is replaced
        write_tensor(tmp_path / "out.nc", np.nan_to_num(found.tensor), mask=mask, like=found)
    with netCDF4.Dataset(tmp_path / "out.nc") as content:
        assert content["t2m"].units == "K" and content["t2m"].dimensions == ("station", "hour", "day")
        assert np.array_equal(content["observed"][...], mask)
    assert read_tensor(tmp_path / "out.nc", variable="t2m").tensor[1, 0, 1] == 3.5


@pytest.mark.parametrize("name", ["cov", "observed", "tempérance", "温度"])
def test_netcdf_holds_any_names_and_axes_that_share_one(tmp_path, name):
    like = files.TensorFile(np.zeros((4, 3, 3)), name=name, axes=("stätion", "channel", "channel"))
    tensor, mask = np.arange(36.0).reshape(4, 3, 3), np.array([True, False, True, True])
    write_tensor(tmp_path / "a.nc", tensor, mask=mask, like=like)
    found = read_tensor(tmp_path / "a.nc", variable=name)
    assert np.array_equal(found.tensor, tensor) and (found.name, found.axes) == (like.name, like.axes)
    with netcdf_file(tmp_path / "a.nc", mmap=False) as content:
        assert content.variables["is_observed" if name == "observed" else "observed"][:].tolist() == mask.tolist()


@pytest.mark.parametrize(
    ("dtype", "held"),
    [("u1", "i2"), ("u2", "i4"), ("u4", "f8"), ("u8", "f8"), ("i1", "i1"), ("i8", "f8"), ("f2", "f4"), (">f4", "f4")],
)
def test_netcdf_holds_numbers_of_any_type(tmp_path, dtype, held):
    write_tensor(tmp_path / "a.nc", np.arange(100, 124).reshape(SHAPE).astype(dtype))
    found = read_tensor(tmp_path / "a.nc").tensor
    assert found.dtype == held and np.array_equal(found, np.arange(100, 124).reshape(SHAPE))


@pytest.mark.parametrize(
    ("name", "tensor", "error", "said"),
    [
        ("a/b", np.zeros(SHAPE), ValueError, "NetCDF has no name such as 'a/b'"),
        ("", np.zeros(SHAPE), ValueError, "NetCDF has no name such as ''"),
        ("a", np.full(SHAPE, 2**53 + 1), ValueError, "whole numbers beyond 2"),
        ("a", np.zeros(SHAPE, complex), TypeError, "has no numbers such as complex128"),
        ("a", np.broadcast_to(np.float64(1), (1 << 14, 1 << 7, 1 << 7)), ValueError, "holds 2147483644"),
    ],
)
def test_what_netcdf_cannot_hold_is_refused(tmp_path, name, tensor, error, said):
    with pytest.raises(error, match=said):
        write_tensor(tmp_path / "a.nc", tensor, like=files.TensorFile(tensor, name=name))
    with pytest.raises(ValueError, match="share a name, and no size"):
        write_tensor(tmp_path / "a.nc", numbers(), like=files.TensorFile(numbers(), axes=("a", "b", "b")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dtype", "attributes", "gaps"),
    [
        ("f", {}, [9.969209968386869e36]),
        ("d", {}, [9.969209968386869e36]),
        ("h", {}, [-32767]),
        ("i", {}, [-2147483647]),
        ("b", {}, []),
        ("h", {"_FillValue": np.int16(-9), "missing_value": np.int16(5)}, [-9, 5]),
        ("f", {"missing_value": -999.9}, [np.float32(-999.9)]),
        ("i", {"missing_value": np.array([3, 4], "i4")}, [3, 4]),
        ("i", {"missing_value": b"none", "valid_range": np.int32(3)}, []),
        ("h", {"valid_range": np.array([-4, 30], "i2"), "scale_factor": 0.5}, [-5, 31]),
        ("f", {"valid_min": np.float32(-4), "valid_max": np.float32(30)}, [-5, 31]),
    ],
)
def test_gaps_of_netcdf_3_are_those_of_netcdf_4(tmp_path, dtype, attributes, gaps):
    raw = np.arange(6, 30).astype(dtype)
    raw[: len(gaps)] = gaps
    with netcdf_file(tmp_path / "a.nc", "w") as content:
        for axis, size in zip("abc", SHAPE, strict=True):
            content.createDimension(axis, size)
        made = content.createVariable("t", dtype, tuple("abc"))
        made[...] = raw.reshape(SHAPE)
        for name, value in attributes.items():
            setattr(made, name, value)
    found = read_tensor(tmp_path / "a.nc").tensor.ravel()
    assert np.flatnonzero(np.isnan(found)).tolist() == [*range(len(gaps))]
    assert np.array_equal(found[len(gaps) :], raw[len(gaps) :] * attributes.get("scale_factor", 1))


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4"])
def test_numbers_in_the_other_byte_order_are_read(tmp_path, name, dtype):
    (np.save if name == "a.npy" else np.savez)(tmp_path / name, np.rint(numbers()).astype(dtype))
    found = read_tensor(tmp_path / name).tensor
    assert found.dtype == dtype[1:] and np.array_equal(found, np.rint(numbers()))


def test_files_without_our_mark_are_replaced_only_when_asked(tmp_path):
    for name in ("a.npy", "a.npz", "a.nc"):
        (tmp_path / name).write_bytes(b"the only copy")
        with pytest.raises(oc.errors.OutputError):
            write_tensor(tmp_path / name, numbers())
        assert (tmp_path / name).read_bytes() == b"the only copy"
        write_tensor(tmp_path / name, numbers(), replace=True)
        assert np.array_equal(read_tensor(tmp_path / name).tensor, numbers())


@pytest.mark.parametrize(
    ("name", "arrays", "said"),
    [
        ("a.npz", {"x": np.zeros(SHAPE), "y": np.zeros(SHAPE)}, "2 variables with three axes"),
        ("a.npz", {"x": np.zeros(3)}, "no variable with three axes"),
        ("a.npz", {"x": np.zeros(SHAPE), "mask": np.zeros(3, bool)}, "mask holds bool of shape"),
        ("a.npy", np.zeros((3, 3)), "a graph-tensor has"),
        ("a.npy", np.zeros((0, 3, 3)), "a graph-tensor has"),
        ("a.txt", np.zeros(SHAPE), "tensors are read from .npy"),
    ],
)
def test_what_is_no_tensor_is_refused(tmp_path, name, arrays, said):
    with (tmp_path / name).open("wb") as file:
        if isinstance(arrays, dict):
            np.savez(file, **arrays)
        else:
            np.save(file, arrays)
    with pytest.raises(ValueError, match=said):
        read_tensor(tmp_path / name)


def test_other_files_that_are_refused(tmp_path):
    np.save(tmp_path / "bool.npy", np.zeros(SHAPE, bool))
    with pytest.raises(TypeError, match="holds bool, but tensors are float32, float64 or integers"):
        read_tensor(tmp_path / "bool.npy")
    for name in ("broken.npy", "broken.npz", "broken.nc"):
        (tmp_path / name).write_bytes(b"CDF\x09 and then nonsense")
        with pytest.raises(ValueError, match="broken"):
            read_tensor(tmp_path / name)
    write_tensor(tmp_path / "cut.nc", numbers())
    whole = (tmp_path / "cut.nc").read_bytes()
    for size in (5, 40, 150, len(whole) - 20):
        (tmp_path / "cut.nc").write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"cut\.nc.*damaged"):
            read_tensor(tmp_path / "cut.nc")
    np.savez(tmp_path / "a.npz", x=numbers())
    with pytest.raises(ValueError, match="no variable 'z'; it has x"):
        read_tensor(tmp_path / "a.npz", variable="z")
    with pytest.raises(ValueError, match="without a name"):
        np.save(tmp_path / "a.npy", numbers())
        read_tensor(tmp_path / "a.npy", variable="x")
    with pytest.raises(ValueError, match="tensors are written as"):
        write_tensor(tmp_path / "a.csv", numbers())
    with pytest.raises(FileNotFoundError):
        read_tensor(tmp_path / "nowhere.npy")


def test_masks_by_slice_and_by_entry(tmp_path):
    (tmp_path / "mask.txt").write_text("1\n0\n1\n1\n")
    assert read_mask(tmp_path / "mask.txt", SHAPE).tolist() == [True, False, True, True]
    np.save(tmp_path / "mask.npy", np.ones(SHAPE, np.uint8))
    assert read_mask(tmp_path / "mask.npy", SHAPE).shape == SHAPE
    (tmp_path / "wrong.txt").write_text("1\n0\n2\n1\n")
    with pytest.raises(ValueError, match="1 where the tensor is observed and 0 elsewhere"):
        read_mask(tmp_path / "wrong.txt", SHAPE)
    with pytest.raises(ValueError, match=r"shape \(4,\); give \(5,\)"):
        read_mask(tmp_path / "mask.txt", (5, 3, 2))
    (tmp_path / "words.txt").write_text("yes\nno\n")
    with pytest.raises(ValueError, match="holds no mask"):
        read_mask(tmp_path / "words.txt", SHAPE)


#: All that is read of files, by a name that it is read under.
READERS = {
    **{f"a.{ending}": read_tensor for ending in ("npy", "npz", "nc", "nc3", "cdf", "nc4")},
    **{f"mask.{ending}": lambda path: read_mask(path, SHAPE) for ending in ("npy", "txt")},
    **{f"graph.{ending}": read_graph for ending in ("npy", "npz", "txt", "mtx", "graph", "oocsr")},
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_is_refused_at_once(tmp_path, name):
    (tmp_path / "pipe").mkdir()
    (tmp_path / "device").mkdir()
    os.mkfifo(tmp_path / "pipe" / name)
    (tmp_path / "device" / name).symlink_to("/dev/zero")
    for kind in ("pipe", "device"):
        with pytest.raises((OSError, ValueError), match=rf"{name}.*(is a {kind}|not a file|regular)"):
            READERS[name](tmp_path / kind / name)


@pytest.mark.parametrize("name", [name for name in READERS if name[-3:] in ("npy", "npz", ".nc")])
def test_what_is_damaged_is_refused_by_its_name(tmp_path, name):
    """Empty, another format, cut, and bytes changed: a refusal that names the file, or an array of the shape and type."""
    path = tmp_path / name
    contents = {"npy": lambda: np.save(path, numbers()), "npz": lambda: np.savez_compressed(path, x=numbers())}
    contents.get(name[-3:], lambda: write_tensor(path, numbers()))()
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    cases = [
        b"",
        b"\x00" * 200,
        b"PK\x05\x06" + bytes(18),
        b"\x93NUMPY\x01\x00\xff\xff",
        *(whole[:at] for at in (1, 9, 70, len(whole) - 3)),
    ]
    for _ in range(60):
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        cases.append(bytes(changed))
    if name.endswith(".nc"):  # sizes and places of its header
        words = itertools.product(range(0, 240, 4), (b"\xff" * 4, b"\x7f" + b"\xff" * 3, b"\x80" + bytes(3)))
        cases += [whole[:at] + word + whole[at + 4 :] for at, word in words]
    refused = 0
    for content in cases:
        path.write_bytes(content)
        try:
            READERS[name](path)
        except (ValueError, TypeError, oc.OocCholError) as error:
            refused += 1
            assert name in str(error), (content, error)
    assert refused >= 8


def test_of_an_archive_only_the_tensor_and_its_mask_are_read(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, other=np.full(30_000, 7.0), x=np.asfortranarray(numbers()), mask=np.array([True, False, True, True]))
    content = path.read_bytes()
    place = content.index(np.full(1000, 7.0).tobytes())
    path.write_bytes(content[: place + 200_000] + b"\xff" + content[place + 200_001 :])
    found = read_tensor(path)
    assert np.array_equal(found.tensor, numbers()) and found.mask.tolist() == [True, False, True, True] and found.name == "x"
    place = content.index(np.asfortranarray(numbers()).tobytes(order="F"))
    path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    with pytest.raises(ValueError, match=r"a\.npz, x\.npy: the archive is damaged there"):
        read_tensor(path)


def test_a_tensor_takes_no_more_than_its_bytes_justify(tmp_path, monkeypatch):
    """Of zeros a thousand bytes are one in the file: beyond a limit that is refused, in an archive and in NetCDF 4."""
    monkeypatch.setattr(files, "_SMALL", 100_000)
    netCDF4 = pytest.importorskip("netCDF4")
    np.savez_compressed(tmp_path / "zeros.npz", tensor=np.zeros((5000, 8, 8), np.float32))
    with netCDF4.Dataset(tmp_path / "unwritten.nc", "w") as content:
        for name in "abc":
            content.createDimension(name, 300)
        content.createVariable("t", "f4", ("a", "b", "c"), chunksizes=(1, 10, 10), zlib=True)
    for name in ("zeros.npz", "unwritten.nc"):
        with pytest.raises(ValueError, match=rf"{name}: the tensor takes \d+ bytes, but the file has \d+; give it as \.npy"):
            read_tensor(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "says.npz", "w") as archive:
        head = tmp_path / "head.npy"
        np.save(head, numbers())
        archive.writestr("x.npy", head.read_bytes().replace(b"(4, 3, 2)", b"(4, 3, 9)"))
    with pytest.raises(ValueError, match=r"says\.npz, x\.npy: 108 numbers of float32 end at byte 560, but it has 224 bytes"):
        read_tensor(tmp_path / "says.npz")
    monkeypatch.undo()
    assert read_tensor(tmp_path / "zeros.npz").tensor.shape == (5000, 8, 8)


def test_numbers_of_a_mask_are_looked_at(tmp_path):
    np.save(tmp_path / "mask.npy", np.array(["1", "0", "1", "1"]))
    with pytest.raises(ValueError, match="and no other number"):
        read_mask(tmp_path / "mask.npy", SHAPE)
