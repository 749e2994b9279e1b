"""Rates of the vendor's products on the same devices, data and minute: DGEMM, and the INT8 products that residues are made of.

Devices of one host share power and host memory, so that a rate of several devices is measured on all of them at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import cupy as cp
import numpy as np
from numpy.typing import NDArray
from nvmath.bindings import cublas

from ooc_chol.bench.cuda.devices import at_once

#: Fills what one device multiplies, and enqueues one product of it; both with that device current.
Prepare: TypeAlias = Callable[[int], Callable[[], None]]

_OP_N, _OP_T = 0, 1
_R_8I, _R_32I = 3, 10
_COMPUTE_32I = 72
_GEMM_DEFAULT = -1


def dgemm_tflops(left: NDArray[np.float64], right: NDArray[np.float64], seconds: float, devices: Sequence[str]) -> list[float]:
    """Rate of ``C -= left @ right.T`` on all devices at once, repeated for at least ``seconds``."""
    nb = left.shape[0]

    def prepare(handle: int) -> Callable[[], None]:
        a, b, c = cp.asarray(left), cp.asarray(right), cp.zeros((nb, nb))
        one, minus_one = np.array(1.0), np.array(-1.0)

        def multiply() -> None:  # row-major C -= A @ B.T is column-major C.T -= B @ A.T
            cublas.dgemm(
                handle, _OP_T, _OP_N, nb, nb, nb, minus_one.ctypes.data, b.data.ptr, nb, a.data.ptr, nb, one.ctypes.data,
                c.data.ptr, nb,
            )  # fmt: skip

        return multiply

    return [2e-12 * nb**3 / each for each in _seconds_each(prepare, seconds, devices)]


#: Columns of the products measured: four tiles of 2048, as a panel has.
_PRODUCT_COLUMNS = 8192


def product_tflops(nb: int, inner: int, moduli: int, *, seconds: float, devices: Sequence[str]) -> list[float]:
    """Rate of the INT8 products behind one FP64-like product, as TFLOP/s of that product, on all devices at once.

    Residues are uniform over int8, as those of a factor are. Bytes: ``moduli * (nb + 8192) * inner + 32768 * moduli * nb``.
    """
    plane = np.random.default_rng(0).integers(-128, 128, (nb, inner), dtype=np.int8)

    def prepare(handle: int) -> Callable[[], None]:
        left, right = (cp.empty((moduli, rows, inner), cp.int8) for rows in (nb, _PRODUCT_COLUMNS))
        left[...] = cp.asarray(plane)
        for row in range(0, _PRODUCT_COLUMNS, nb):
            part = right[:, row : row + nb]
            part[...] = cp.asarray(plane[: part.shape[1]][::-1].copy())
        sums, one = cp.zeros((moduli, nb, _PRODUCT_COLUMNS), cp.int32), np.array(1, np.int32)

        def multiply() -> None:  # S[p] += left[p] @ right[p].T, wrapping as int32 does
            for p in range(moduli):
                right_at, left_at, sum_at = (array.data.ptr + p * array.strides[0] for array in (right, left, sums))
                cublas.gemm_ex(
                    handle, _OP_T, _OP_N, _PRODUCT_COLUMNS, nb, inner, one.ctypes.data, right_at, _R_8I, inner, left_at, _R_8I,
                    inner, one.ctypes.data, sum_at, _R_32I, _PRODUCT_COLUMNS, _COMPUTE_32I, _GEMM_DEFAULT,
                )  # fmt: skip

        return multiply

    return [2e-12 * nb * _PRODUCT_COLUMNS * inner / each for each in _seconds_each(prepare, seconds, devices)]


def _seconds_each(prepare: Prepare, seconds: float, devices: Sequence[str]) -> list[float]:
    """Seconds of one product on each device, over at least ``seconds`` in which all devices multiply."""

    def body(barrier: threading.Barrier) -> float:
        with _handle() as handle:
            multiply = prepare(handle)
            _timed(multiply, 3)
            count = max(3, int(seconds / (_timed(multiply, 3) / 3)))
            barrier.wait()
            return _timed(multiply, count) / count

    return at_once(devices, body)


@contextmanager
def _handle() -> Iterator[int]:
    """A cuBLAS handle on the current stream of the current device."""
    handle = int(cublas.create())
    try:
        cublas.set_stream(handle, cp.cuda.get_current_stream().ptr)
        yield handle
    finally:
        cublas.destroy(handle)


def _timed(enqueue: Callable[[], None], count: int) -> float:
    """Seconds of ``count`` calls on the current stream, between two events."""
    start, end = cp.cuda.Event(block=True), cp.cuda.Event(block=True)
    start.record()
    for _ in range(count):
        enqueue()
    end.record()
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(start, end)) / 1e3
