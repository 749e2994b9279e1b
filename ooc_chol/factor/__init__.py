"""The factor object: what can be done with L once it is computed."""

from __future__ import annotations

from ooc_chol.factor.factor import CholeskyFactor, load
from ooc_chol.factor.residual import ResidualSample, sample_residual

__all__ = ["CholeskyFactor", "ResidualSample", "load", "sample_residual"]
