"""The small systems of local kriging: covariances of stacks of neighbourhoods, factored and solved as batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.coincidence import least_pivot
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.rows import Rows
from ooc_chol.apps.geostat.errors import NeighbourhoodError

#: Rows of a covariance matrix that are filled at once, up to the diagonal only.
_ROWS = 64

_Array = NDArray[np.float64]
_Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Solved:
    """Half-solves of a stack of neighbourhoods, ``inv(L)`` times what stands on their right-hand sides."""

    cross: _Array | None  #: (s, k, g): of the covariances with the sites; None where only means are wanted
    residual: _Array  #: (s, k): of the residuals, or where only means are wanted ``inv(S) r``
    design: _Array  #: (s, k, p): of the columns of the mean


class LocalSystems:
    """Makes and solves the systems of neighbourhoods, on the host or a GPU.

    Shapes: ``coordinates`` (n, d), ``diagonal`` (n,), ``table`` (n, 1 + p).
    """

    def __init__(
        self, model: AbstractCovariance, coordinates: _Array, diagonal: _Array, table: _Array, *, rows: Rows, device: str | None
    ) -> None:
        self._rows = rows
        self._model, self._table, self._diagonal = model, table, diagonal
        self._variances = model.site_variances(coordinates)
        self._axes = np.ascontiguousarray(coordinates.T)
        self._how: dict[str, Any] = {} if device is None else {"devices": device}

    def matrix_bytes(self, k: int, g: int) -> int:
        """Memory for one neighbourhood of ``k`` data and ``g`` sites: matrix and factor, right-hand sides and solutions."""
        return 16 * k * (k + g + int(self._table.shape[1]))

    def cross(self, neighbours: _Indices, sites: _Array) -> _Array:
        """Covariances (s, k, g) of the field at the neighbours (s, k) and at the sites (s, g, d) of each group."""
        out = np.empty((*neighbours.shape, sites.shape[1]))
        places, targets = self._axes[:, neighbours], np.moveaxis(sites, 2, 0)
        _in_parts(lambda part: _fill(self._model, places[:, part], targets[:, part], out[part]), len(out), neighbours.shape[1])
        return out

    def factors(self, neighbours: _Indices) -> oc.BatchFactor:
        """Cholesky factors of the covariance matrices of the data in each neighbourhood (s, k)."""
        s, k = neighbours.shape
        matrices, places, own = np.empty((s, k, k)), self._axes[:, neighbours], np.arange(k)
        _in_parts(lambda part: _fill_lower(self._model, places[:, part], matrices[part]), s, k)
        matrices[:, own, own] += self._diagonal[neighbours]
        try:
            factors: Any = oc.cholesky(matrices, lower=True, **self._how)
            self._check_pivots(factors, neighbours)
        except oc.NotPositiveDefiniteError as error:
            datum = int(neighbours[error.matrix or 0, error.minor - 1])
            raise NeighbourhoodError(datum, tuple(self._axes[:, datum].tolist()), error.minor, self._rows.named(datum)) from error
        made: oc.BatchFactor = factors
        return made

    def _check_pivots(self, factors: oc.BatchFactor, neighbours: _Indices) -> None:
        """Raise ``NotPositiveDefiniteError`` for a pivot that is made of rounding errors."""
        least = least_pivot(neighbours.shape[1]) * self._variances[neighbours]
        if self._diagonal.min() > least.max():
            return  # no pivot is smaller than the error of its observation
        if (weak := factors.diagonal() ** 2 <= least).any():
            factors.close()
            first, last = np.argwhere(weak)[0]
            raise oc.NotPositiveDefiniteError(int(last) + 1, (0, 0), int(first))

    def solved(self, neighbours: _Indices, cross: _Array, *, variance: bool) -> Solved:
        """Factor, and solve for variances too, or for means alone."""
        right = self._table[neighbours]
        with self.factors(neighbours) as factors:
            if not variance:
                dual = factors.solve(right[..., :1])
                return Solved(None, dual[..., 0], right[..., 1:])
            half = factors.half_solve(np.concatenate([cross, right], axis=2))
        g = cross.shape[2]
        return Solved(half[..., :g], half[..., g], half[..., g + 1 :])


def _in_parts(fill: Any, count: int, k: int) -> None:
    """Fill a stack by threads: each matrix by itself where it is large, some at once where many are small."""
    step = max(1, _ROWS**2 * 16 // (k * k))
    tb.map_in_threads(fill, [slice(start, start + step) for start in range(0, count, step)])


def _fill(model: AbstractCovariance, a: _Array, b: _Array, out: _Array) -> None:
    """Covariances of a stack, a matrix at a time where it has more rows than are filled at once."""
    if out.shape[1] <= _ROWS:
        model.fill(a, b, out)
        return
    for i, matrix in enumerate(out):
        model.fill(a[:, i], b[:, i], matrix)


def _fill_lower(model: AbstractCovariance, a: _Array, out: _Array) -> None:
    """As :func:`_fill` for symmetric matrices; what is above the blocks on the diagonal is zero."""
    if out.shape[1] <= _ROWS:
        model.fill(a, a, out)
        return
    for i, matrix in enumerate(out):
        places = np.ascontiguousarray(a[:, i])
        for start in range(0, len(matrix), _ROWS):
            stop = min(start + _ROWS, len(matrix))
            model.fill(places[:, start:stop], places[:, :stop], matrix[start:stop, :stop])
            matrix[start:stop, stop:] = 0.0
