"""Tensors and masks in files: what is written is read again, and what is no tensor is refused with words."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps.imputation import observed_mask, read_mask, read_tensor, write_tensor

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


def test_files_without_our_mark_are_replaced_only_when_asked(tmp_path):
    for name in ("a.npy", "a.npz", "a.nc"):
        (tmp_path / name).write_bytes(b"the only copy")
        with pytest.raises(oc.OutputError):
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
    np.save(tmp_path / "int.npy", np.zeros(SHAPE, int))
    with pytest.raises(TypeError, match="holds int64, but tensors are float32 or float64"):
        read_tensor(tmp_path / "int.npy")
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
