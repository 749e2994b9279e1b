"""The factor object: what can be done with L once it is computed."""

from __future__ import annotations

from ooc_chol.dense.factor.device_sweeps import DeviceSolver
from ooc_chol.dense.factor.factor import CholeskyFactor, load
from ooc_chol.dense.factor.habits import SignAndLogdet
from ooc_chol.dense.factor.operators import TransposedFactor
from ooc_chol.dense.factor.residual import ResidualSample, sample_residual
from ooc_chol.dense.factor.trace_sums import HalfSolveSums, InverseTraces

__all__ = [
    "CholeskyFactor",
    "DeviceSolver",
    "HalfSolveSums",
    "InverseTraces",
    "ResidualSample",
    "SignAndLogdet",
    "TransposedFactor",
    "load",
    "sample_residual",
]
