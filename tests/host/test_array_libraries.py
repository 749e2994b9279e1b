"""Arrays of other libraries on the host: taken as A, as right-hand sides and in batches, and L handed over to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.matrices import FAMILIES

N = 40


class HandsOver:
    """What the array API standard asks of an exchange, and nothing else: no ``__array__``, no slices that NumPy could read."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def __dlpack__(self, **options: Any) -> Any:
        return self._x.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Standard(HandsOver):
    """An array of the standard: its type and shape, slices, and a namespace that its functions are in."""

    def __init__(self, x: Any) -> None:
        super().__init__(x)
        self.shape, self.dtype = x.shape, x.dtype

    def __getitem__(self, key: Any) -> Standard:
        return Standard(self._x[key])

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return np


GIVEN = {"handed over": HandsOver, "of the standard": Standard, "a list": lambda x: x.tolist(), "a buffer": memoryview}


@pytest.mark.parametrize("given", GIVEN)
def test_every_library_is_taken_and_answered_in_numpy(given):
    a, make = FAMILIES["exponential"](N), GIVEN[given]
    expected, b = oc.cholesky(a), np.arange(2.0 * N).reshape(N, 2)
    factor = oc.cholesky(make(a))
    assert np.array_equal(np.asarray(factor), np.asarray(expected))
    for method in ("solve", "half_solve", "matmul"):
        found = getattr(factor, method)(make(b))
        assert type(found) is np.ndarray and np.array_equal(found, getattr(expected, method)(b))
    assert np.array_equal(oc.solve(make(a), make(b)), expected.solve(b))
    assert np.array_equal(factor.solve(make(b), refine=True), expected.solve(b, refine=True))
    assert factor.update(make(b)).logdet() == expected.update(b).logdet()


@pytest.mark.parametrize("given", ["handed over", "of the standard"])
def test_right_hand_sides_are_checked_whatever_library_they_are_of(given):
    factor, make = oc.cholesky(FAMILIES["exponential"](N)), GIVEN[given]
    with pytest.raises(ValueError, match="shape"):
        factor.solve(make(np.ones(N + 1)))
    with pytest.raises(TypeError, match="complex"):
        factor.solve(make(np.ones(N, complex)))
    with pytest.raises(ValueError, match=r"entry \[3\] of the right-hand side is nan"):
        factor.solve(make(np.where(np.arange(N) == 3, np.nan, 1.0)))


@pytest.mark.parametrize("given", ["of the standard", "a list"])
def test_batches_are_taken_and_solved(given):
    a, make = np.stack([FAMILIES["exponential"](9), 2 * np.eye(9)]), GIVEN[given]
    b = np.ones((2, 9))
    factors = oc.cholesky(make(a))
    assert np.array_equal(factors.solve(make(b)), oc.cholesky(a).solve(b))


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64"])
def test_a_factor_is_handed_over_to_every_library(dtype):
    factor = oc.cholesky(FAMILIES["exponential"](N).astype(dtype), dtype=dtype, tile_size=16)
    dense = np.from_dlpack(factor)
    assert dense.dtype == dtype and np.array_equal(dense, np.asarray(factor)) and factor.__dlpack_device__() == (1, 0)
