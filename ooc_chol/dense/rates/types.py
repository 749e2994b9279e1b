"""Rates of types other than float64: those that were measured, else float64's by stated ratios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any, cast

from ooc_chol.dense.programs.cost import Rates, RatesOrigin
from ooc_chol.dense.rates.gpus import ceilings_of
from ooc_chol.dense.rates.stored import COPIED_SHARE, kernels_of_type, rates_of
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.rates_file import Figures
from ooc_chol.hardware.registry import device_kind

#: Flops in single precision for one in double where nothing was measured: on a host, whose vectors hold twice as many numbers,
#: and on a GPU of which no ceilings are known, as on most that compute in FP64 on tensor cores.
_HOST_SINGLE_SPEED, _GPU_SINGLE_SPEED = 2.0, 1.0


def typed_rates_of(figures: Figures, nb: int, source: str, store: str, fmt: PrecisionFormat, name: str) -> Rates:
    """Stored figures of the device ``name`` as rates of one type; ``ValueError`` where they are damaged."""
    rates = rates_of(figures, nb, source, store)
    if fmt == FP64:
        return rates
    measured = kernels_of_type(figures, fmt.dtype.name)
    if measured is None:
        return scaled_to(rates, fmt, single_speed(name))
    copied = COPIED_SHARE if source == "device-array" else 1.0
    return _with_kernels(rates, {**measured, "generate": copied * measured["generate"]})


def scaled_to(rates: Rates, fmt: PrecisionFormat, single: float) -> Rates:
    """Rates of float64 scaled to another type, whose precision is ``single`` times as fast where it is single.

    Flops are those of real numbers, of which a complex type has as many in a second; entries that are checked go by their bytes.
    """
    speed = 1.0 if fmt.real_dtype == FP64.dtype else single
    kernels = {name: speed * getattr(rates, name) for name in ("potrf", "trsm", "syrk", "gemm")}
    kernels["generate"] = rates.generate * FP64.itemsize / fmt.itemsize
    scaled = _with_kernels(rates, kernels)
    return scaled if rates.origin is RatesOrigin.NOMINAL else replace(scaled, origin=RatesOrigin.SCALED)


def _with_kernels(rates: Rates, kernels: Mapping[str, float]) -> Rates:
    """The same links and residues, which plans scale to their number, beside other kernels; what only float64 has is left out."""
    return replace(rates, **cast(dict[str, Any], kernels), invert=inf, trsm_float32=None, gemm_float32=None)


def single_speed(name: str) -> float:
    """Flops of a device in single precision for one in double: of a GPU by its ceilings."""
    facts = device_kind(name).gpu_facts(name)
    if facts is None:
        return _HOST_SINGLE_SPEED
    ceilings = ceilings_of(facts)
    return _GPU_SINGLE_SPEED if ceilings is None else ceilings.fp32 / ceilings.fp64
