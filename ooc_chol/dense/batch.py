"""Batches of small matrices: ``cholesky`` of an array ``(b, n, n)``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ooc_chol.calls.report import CallSeconds
from ooc_chol.config import format_bytes
from ooc_chol.dense.batch_factor import BatchFactor, BatchReport
from ooc_chol.dense.options import FactorOptions, option_table
from ooc_chol.dense.planner.problem import SURELY_FREE
from ooc_chol.display.prints import frames_of_the_package
from ooc_chol.errors import (
    AsymmetryWarning,
    BudgetError,
    MissingValueError,
    NonFiniteError,
    NotPositiveDefiniteError,
    UnsupportedTypeError,
)
from ooc_chol.files.inputs import plain_array
from ooc_chol.formats import FP64
from ooc_chol.hardware.arrays import device_of
from ooc_chol.hardware.host import free_host_bytes
from ooc_chol.hardware.registry import device_kind, driver_errors_typed, handed_over, resolve_devices
from ooc_chol.interfaces import Tile
from ooc_chol.kernels.interfaces.batch import AbstractBatchKernels
from ooc_chol.kernels.registry import kind_of
from ooc_chol.memory.sources import as_source, is_closed
from ooc_chol.memory.sources.base import check_dtype
from ooc_chol.memory.sources.symmetry import find_asymmetry
from ooc_chol.process import blas_buffers

#: Options of a factorization that say something about a batch; all others are about one matrix and its tiles.
_OPTIONS = ("devices",)
#: Matrices of a batch of which a sample of both triangles is compared: the first, the middle and the last.
_SAMPLED = 3
#: Bytes of a batch in which entries that are not finite are looked for at once, after a matrix has failed.
_LOOKED_AT = 1 << 24


def is_batch(a: Any) -> bool:
    """Tell whether ``a`` is an array of three dimensions, or a list of matrices."""
    if isinstance(a, list | tuple):
        try:
            return len(a) > 0 and np.ndim(a[0]) == 2
        except ValueError:  # rows of several lengths, which are refused as a matrix
            return False
    shape = None if is_closed(a) else getattr(a, "shape", None)
    return isinstance(shape, tuple) and len(shape) == 3


def factor_batch(a: Any, options: FactorOptions, *, lower: bool | None, others: Mapping[str, bool]) -> BatchFactor:
    """Factor a batch; ``others`` are arguments of ``cholesky`` that are about one matrix, and whether they were given."""
    began = time.perf_counter()
    blas_buffers.ensure(numpys=True)
    _refuse_options(options, others)
    a = _as_array(a)
    device = _device_of_batch(a, options)
    shape = _check_batch(a)
    if lower is None:
        _warn_of_asymmetry(a)
    turned = a.swapaxes(1, 2) if lower is False else a
    kernels = kind_of(device).create_batch(device)
    with driver_errors_typed(device, f"factoring a batch of {shape[0]} matrices"), kernels.current():
        numbers = kernels.numbers(turned)
        started = time.perf_counter()
        stack, failure = kernels.factor(numbers)
        if failure is not None:
            _refuse_nonfinite(kernels, turned, device_kind(device).to_host, is_turned=lower is False)
            place = failure.minor - 1, failure.minor - 1
            zero = as_source(turned[failure.matrix]).lost(*place, FP64.dtype)
            raise NotPositiveDefiniteError(failure.minor, (0, 0), failure.matrix, zero)
        ended = time.perf_counter()
    if isinstance(stack, np.ndarray):
        stack.flags.writeable = False
    seconds = CallSeconds(time.perf_counter() - began, {"run": ended - started})
    return BatchFactor(kernels, stack, BatchReport(shape[0], shape[1], device, seconds))


def _as_array(a: Any) -> Any:
    """The batch as an array of NumPy, or of CuPy on a GPU."""
    if isinstance(a, np.ndarray):
        return a
    handed = handed_over(a)
    if handed is not None:
        return handed[1]
    try:
        batch = plain_array("A", a)
    except MissingValueError:
        raise
    except ValueError as error:
        raise ValueError(f"A is a {type(a).__name__} that is no batch ({error}); give square matrices of one order") from error
    if batch.ndim != 3:
        raise ValueError(
            f"A is a {type(a).__name__} that is no batch, but of shape {batch.shape}; give square matrices of one order"
        )
    return batch


def _refuse_options(options: FactorOptions, others: Mapping[str, bool]) -> None:
    """Raise ``ValueError`` for what is about one matrix."""
    given = [name for name, (_, default) in option_table(options).items() if getattr(options, name) != default]
    given = [name for name in given if name not in _OPTIONS] + [name for name, is_given in others.items() if is_given]
    if given:
        raise ValueError(
            f"A is a batch of matrices, which one routine factors in memory: leave {', '.join(given)} out, or factor the "
            "matrices one by one"
        )


def _device_of_batch(a: Any, options: FactorOptions) -> str:
    """Where the batch is factored: where it lies, unless a device is named."""
    if options.devices is None:
        return device_of(a) or "host:0"
    names = resolve_devices(options.devices)
    if len(names) > 1:
        raise ValueError(f"devices is {list(names)}, but a batch is factored on one device: name it")
    return names[0]


def _check_batch(a: Any) -> tuple[int, int, int]:
    """Refuse what is no batch of square matrices of real numbers that this machine's memory holds."""
    shape = tuple(map(int, a.shape))
    if shape[1] != shape[2]:
        raise ValueError(f"the batch has shape {shape}, but the matrices of a batch (b, n, n) are square")
    check_dtype(a.dtype, "the batch")
    if a.dtype.kind == "c":
        raise UnsupportedTypeError("a batch", a.dtype.name, "factor its matrices one by one")
    needed, free = 8 * shape[0] * shape[1] * shape[2], SURELY_FREE
    if device_of(a) is None and needed > SURELY_FREE and needed > (free := free_host_bytes()):
        advice = f"factor the batch in parts ({format_bytes(needed // max(1, shape[0]))} for each matrix)"
        raise BudgetError("host memory for the factors of a batch", needed, free, advice)
    return shape[0], shape[1], shape[2]


def _warn_of_asymmetry(a: Any) -> None:
    """Compare samples of both triangles of a few matrices."""
    for at in sorted({round(share * (len(a) - 1)) for share in np.linspace(0, 1, _SAMPLED)}) if len(a) else []:
        if (found := find_asymmetry(as_source(a[at]))) is not None:
            text = f"matrix {at} of the batch: {found}: it is not symmetric, and only lower triangles are read. Give lower=True "
            text += "if that is what you mean, lower=False if the upper ones count"
            warnings.warn(text, AsymmetryWarning, stacklevel=frames_of_the_package() + 1)
            return


def _refuse_nonfinite(kernels: AbstractBatchKernels, a: Any, to_host: Callable[[Tile], Tile], *, is_turned: bool) -> None:
    """Raise for the first entry of a lower triangle that is not finite; ``a`` is read again, some matrices at a time."""
    count, n = a.shape[:2]
    step = max(1, _LOOKED_AT // (8 * n * n))
    for start in range(0, count, step):
        part = to_host(kernels.numbers(a[start : start + step]))
        bad = ~np.isfinite(part) & np.tri(n, dtype=bool)
        if bad.any():
            at, row, col = map(int, np.unravel_index(int(np.argmax(bad)), bad.shape))
            place, triangle = ((col, row), "upper") if is_turned else ((row, col), "lower")
            source = as_source(a[start + at])
            held = source.describe(row, col) or source.lost(row, col, FP64.dtype)
            raise NonFiniteError(*place, (0, 0), held, triangle, start + at)
