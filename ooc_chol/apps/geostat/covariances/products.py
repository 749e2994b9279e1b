"""Products of the covariances between two sets of sites with a vector; the covariances are never stored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance

#: Rows and columns of a piece, 128 KiB: it stays in a core's second-level cache.
_ROWS, _COLUMNS = 32, 512

#: Rows for which a thread is asked at once.
_SHARE = 256


def cross_products(
    model: AbstractCovariance, a: NDArray[np.float64], b: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``C(a, b) @ weights`` of the smooth field, without nugget.

    Parameters
    ----------
    model : AbstractCovariance
        Covariance function with its parameters.
    a : (m, d) array
        Sites, checked.
    b : (n, d) array
        Sites, checked.
    weights : (n,) array
        A weight for each site of ``b``.

    Returns
    -------
    (m,) array
        The sums.

    Notes
    -----
    Cost ``m n`` covariances, by all threads.
    """
    rows, columns = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)

    def products(start: int) -> NDArray[np.float64]:
        part = rows[:, start : start + _SHARE]
        total, piece = np.zeros(part.shape[1]), np.empty((_ROWS, _COLUMNS))
        for left in range(0, len(weights), _COLUMNS):
            beside = columns[:, left : left + _COLUMNS]
            for top in range(0, part.shape[1], _ROWS):
                some = part[:, top : top + _ROWS]
                out = piece.reshape(-1)[: some.shape[1] * beside.shape[1]].reshape(some.shape[1], -1)
                model.fill(some, beside, out)
                total[top : top + _ROWS] += out @ weights[left : left + _COLUMNS]
        return total

    return np.concatenate(oc.map_in_threads(products, range(0, len(a), _SHARE)))
