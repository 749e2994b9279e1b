"""Results of a Vecchia approximation, wherever it is computed: whitened observations, and sums over the conditional densities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.covariances.coincidence import unfactored
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.rows import Rows, counted_rows
from ooc_chol.apps.geostat.estimation.mean import Whitened
from ooc_chol.apps.geostat.estimation.scores import Sums

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class VecchiaProblem:
    """Data and model of the conditional densities, whatever graph they are conditioned by."""

    correlation: AbstractCovariance
    coordinates: Array  #: (n, dimensions)
    table: Array  #: (n, 1 + p): residuals and design
    noise: Array | None  #: (n,) known error variances over the variance, a direction of their own where there are any
    shape: Sequence[str] | None  #: Parameters to derive by; None for values alone
    rows: Rows | None = None  #: What errors call the observations

    @property
    def directions(self) -> int:
        """Derivatives, known errors and the identity; none for values alone."""
        return 0 if self.shape is None else len(self.shape) + (self.noise is not None) + 1

    def refusal(self, given: NDArray[np.intp]) -> oc.NotPositiveDefiniteError:
        """The error where the last of some observations has no variance left given those before it."""
        rows = counted_rows(len(self.table)) if self.rows is None else self.rows
        own = rows.take(given)
        return unfactored(self.correlation, self.coordinates[given], own, len(given), "its neighbours before it")


@dataclass(frozen=True, eq=False)
class VecchiaParts:
    """Parts of ``t`` conditional densities for ``d`` directions, or for none where no derivatives are requested."""

    whitened: Array  #: (t, 1 + p): values and design of the targets
    logdet: float
    trace_sums: Array  #: (d,)
    crossed: Array  #: (d, d)
    products: Array  #: (d, 1 + p, 1 + p): minus the sum of derivatives of the whitened values and design times these


def joined(parts: Sequence[VecchiaParts]) -> VecchiaParts:
    """Parts of one approximation that follow each other, as one; sums are added in their order."""
    trace_sums, crossed, products = (
        np.sum([getattr(part, name) for part in parts], axis=0) for name in ("trace_sums", "crossed", "products")
    )
    logdet = float(sum(part.logdet for part in parts))
    return VecchiaParts(np.concatenate([part.whitened for part in parts]), logdet, trace_sums, crossed, products)


def sums_of(parts: VecchiaParts, whitened: Whitened, freedom: int, reml: bool) -> Sums:
    """Sums of gradient and information, with the direction of the matrix itself, for which ``f`` is the last unit vector."""
    trace_sums = parts.trace_sums
    weights = np.append(1.0, -whitened.coefficients)
    squares = 2.0 * np.einsum("q,jqr,r->j", weights, parts.products, weights)
    d = len(trace_sums)
    if reml:
        trace_sums = trace_sums - 2.0 * np.einsum("qr,jqr->j", whitened.inverse_information, parts.products[:, 1:, 1:])
    everything = np.empty((d + 1, d + 1))
    everything[:d, :d] = parts.crossed
    everything[d, :d] = everything[:d, d] = trace_sums
    everything[d, d] = freedom
    return Sums(np.append(squares, whitened.quadratic), np.append(trace_sums, freedom)[np.newaxis], everything[np.newaxis])
