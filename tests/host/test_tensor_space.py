"""The space in host memory: the steps of the model, whatever the route, the panel, the thread or the place."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import Precision
from tests.inside.kernels import TENSOR_PANEL_COLUMNS as PANEL_COLUMNS
from tests.inside.tensors import HostTensorSpace
from tests.tensor_runs import STEP_RTOL, PlainSpace, error_of, problem

CASES = {
    "slices": (30, 12, 9, 0.7, "slice"),
    "entries": (30, 9, 12, 0.7, "entry"),
    "panels": (12, 90, 90, 0.7, "entry"),  # 8,100 columns of the unfolding: two panels
    "vectors": (25, 1, 7, 0.7, "slice"),
    "numbers": (25, 1, 1, 0.7, "slice"),
}


def case(name, dtype=np.float64):
    n, rows, columns, share, by = CASES[name]
    rank = min(2, rows, columns)
    return problem(n, rows, rank, share, by=by, columns=columns, dtype=dtype)


def run(space, given, *, momentum=0.0, shrinkage="soft", lambdas=6, start=None):
    """Figures of some steps, and X."""
    with space:
        space.load(given.x, given.mask, start)
        first = space.largest()
        figures = [space.step(first * 0.5**each, momentum, shrinkage) for each in (1, 1, 2, 2, *range(3, lambdas))]
        return first, figures, np.array(space.take())


@pytest.mark.parametrize("svt", ["gram64", "subspace", "svd"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("momentum", "shrinkage"), [(0.0, "soft"), (0.4, "soft"), (0.5, "garrote")])
def test_steps_are_those_of_the_model(svt, name, momentum, shrinkage):
    given = case(name)
    given.x[~np.broadcast_to(given.mask.reshape(given.mask.shape + (1,) * (3 - given.mask.ndim)), given.x.shape)] = np.nan
    basis, slices = given.fourier.basis, given.x.shape[1:]
    plain = run(PlainSpace(basis, slices), given, momentum=momentum, shrinkage=shrinkage)
    found = run(HostTensorSpace(basis, slices, Precision.DDD, svt), given, momentum=momentum, shrinkage=shrinkage)
    assert np.isclose(found[0], plain[0], rtol=STEP_RTOL)
    assert error_of(found[2], plain[2]) <= STEP_RTOL
    for mine, theirs in zip(found[1], plain[1], strict=True):
        assert np.isclose(mine.change, theirs.change, rtol=1e-6) and np.isclose(mine.size, theirs.size, rtol=STEP_RTOL)
        assert mine.ranks.tolist() == theirs.ranks.tolist()


def test_single_precision_is_near():
    given = case("panels", np.float32)
    assert given.x[0].size > PANEL_COLUMNS
    plain = run(PlainSpace(given.fourier.basis, given.x.shape[1:]), given)
    for precision in (Precision.FDF, Precision.FFF):
        found = run(HostTensorSpace(given.fourier.basis, given.x.shape[1:], precision), given)
        assert found[2].dtype == np.float32
        assert error_of(found[2], plain[2]) <= 1e-6


@pytest.mark.parametrize("svt", ["gram64", "subspace"])
def test_threads_and_files_change_no_bit(svt, tmp_path):
    given = case("panels", np.float32)
    basis, slices = given.fourier.basis, given.x.shape[1:]
    expected = run(HostTensorSpace(basis, slices, Precision.FDF, svt), given)[2].tobytes()
    saved = tmp_path / "x.npy"
    np.save(saved, given.x)
    mapped = type(given)(x=np.load(saved, mmap_mode="r"), mask=given.mask)
    for options in ({"threads": 2}, {"folder": tmp_path}):
        space = HostTensorSpace(basis, slices, Precision.FDF, svt, **options)
        assert run(space, mapped)[2].tobytes() == expected
    assert [each.name for each in tmp_path.iterdir()] == ["x.npy"]


def test_a_warm_start_goes_on_to_the_same_bits():
    given = case("slices", np.float32)
    basis, slices = given.fourier.basis, given.x.shape[1:]
    with HostTensorSpace(basis, slices, Precision.FDF, "subspace") as space:
        space.load(given.x, given.mask)
        first = space.largest()
        for each in (1, 2, 3):
            space.step(first * 0.5**each, 0.3)
        x, warm = np.array(space.take()), [each.copy() for each in space.warm()]
        space.step(first * 0.5**4, 0.3)
        expected = np.array(space.take())
    with HostTensorSpace(basis, slices, Precision.FDF, "subspace") as space:
        space.load(given.x, given.mask, x)
        assert space.largest() == first
        space.warm_up(warm)
        space.step(first * 0.5**4, 0.3)
        assert np.array_equal(space.take(), expected)
        assert np.array_equal(space.take(range(3, 9)), expected[3:9])
        assert not space.executed_bytes and not space.planned_bytes


def test_a_folder_that_is_not_there_and_too_large_numbers_are_told(tmp_path):
    given = case("slices", np.float32)
    basis = given.fourier.basis
    with pytest.raises((oc.errors.TierError, FileNotFoundError), match="missing"):
        HostTensorSpace(basis, (12, 9), Precision.FDF, folder=tmp_path / "missing")
    space = HostTensorSpace(basis, (12, 9), Precision.DDD)
    with space, pytest.raises(oc.errors.NonFiniteTensorError, match="scale the tensor"):
        space.load(1e200 * given.x.astype(float), given.mask)
