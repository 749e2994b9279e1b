"""The Matérn covariance function at smoothness 1/2, 3/2 and 5/2, and the tile function that fills its matrix in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

import ooc_chol as oc

#: The values of the smoothness nu that have a closed form here.
SMOOTHNESS = (0.5, 1.5, 2.5)

#: Correlation at which the effective range is read.
EFFECTIVE_CORRELATION = 0.05

#: Entries filled at once (128 KiB), so that a chunk and its scratch stay in the second-level cache of a core.
_CHUNK_ENTRIES = 16384

TileFunction = Callable[[range, range, NDArray[np.float64], Any], None]


@dataclass(frozen=True)
class Matern:
    """Matérn covariance ``C(h) = variance * 2**(1 - nu) / gamma(nu) * (h/range)**nu * K_nu(h/range)``, and a nugget.

    Parameters
    ----------
    variance : float
        Variance ``sigma2`` of the smooth field (the partial sill), in squared units of the values. Positive.
    range : float
        Length ``a`` in ``K_nu(h/a)``, in the unit of the coordinates. Positive. ExaGeoStat, GpGp, geoR and fields use the same;
        scikit-learn's ``length_scale`` is ``a * sqrt(2 * nu)`` and GSTools' ``len_scale`` is ``a * sqrt(nu)``.
    smoothness : float
        ``nu``: 0.5, 1.5 or 2.5.
    nugget : float
        Variance ``tau2`` of the independent error of each *observation*. It is added by index, never by zero distance, so two
        observations at one place are two measurements, not one singular row. Zero or positive.

    Raises
    ------
    ValueError
        A parameter is not finite or out of its bounds, or the smoothness has no closed form here.

    Examples
    --------
    >>> round(Matern(variance=2.0, range=1.0, smoothness=0.5).effective_range, 4)
    2.9957
    """

    variance: float
    range: float
    smoothness: float
    nugget: float = 0.0

    def __post_init__(self) -> None:
        check_smoothness(self.smoothness)
        for name, value in (("variance", self.variance), ("range", self.range)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}, but it must be finite and positive")
        if not (math.isfinite(self.nugget) and self.nugget >= 0):
            raise ValueError(f"nugget is {self.nugget}, but it must be finite, and zero or positive")

    @property
    def sill(self) -> float:
        """Variance of one observation, ``variance + nugget``."""
        return self.variance + self.nugget

    @property
    def effective_range(self) -> float:
        """Distance at which the correlation of the smooth field has fallen to 0.05, in the unit of the coordinates."""
        return self.range * _effective_factor(self.smoothness)

    def covariance(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Covariance of the smooth field (without nugget) at each ``distance``, an array of any shape; a new array."""
        scaled = np.array(distance, dtype=np.float64, ndmin=1) / self.range
        _correlate(scaled, np.empty_like(scaled), self.smoothness)
        scaled *= self.variance
        return scaled.reshape(np.shape(distance))


def check_smoothness(smoothness: float) -> None:
    """Raise ``ValueError`` unless ``smoothness`` is one of :data:`SMOOTHNESS`.

    Parameters
    ----------
    smoothness : float
        The value of nu that was asked for.

    Raises
    ------
    ValueError
        There is no closed form for it here.
    """
    if smoothness not in SMOOTHNESS:
        raise ValueError(f"smoothness is {smoothness}, but only 0.5, 1.5 and 2.5 are there today; general nu comes later")


def covariance_tiles(model: Matern, coordinates: NDArray[np.float64]) -> TileFunction:
    """Make the tile function of ``Sigma[i, j] = C(|x_i - x_j|) + nugget * (i == j)``.

    Parameters
    ----------
    model : Matern
        The covariance function.
    coordinates : (n, d) array
        Cartesian coordinates of the observations in matrix order, ``1 <= d <= 3``.

    Returns
    -------
    callable
        ``tile_fn(rows, cols, out, stream)`` for ``ooc_chol.from_function``. It is pure and fills ``out`` by NumPy ufuncs, which
        release the interpreter lock; apart from one scratch array of 128 KiB (or one row of the tile) it allocates nothing.

    Notes
    -----
    Cost about 4 ns per entry and core with vectorised ``exp``; differences of coordinates are taken before any scaling, so that
    distances keep their relative accuracy wherever the origin is.
    """
    axes = np.ascontiguousarray(np.transpose(coordinates), dtype=np.float64)

    def tile_fn(rows: range, cols: range, out: NDArray[np.float64], stream: Any) -> None:
        _fill(model, axes[:, rows.start : rows.stop], axes[:, cols.start : cols.stop], out)
        both = range(max(rows.start, cols.start), min(rows.stop, cols.stop))
        if both:
            # Sigma[i, i] = variance + nugget, by index
            own = np.arange(both.start, both.stop)
            out[own - rows.start, own - cols.start] = model.sill

    return tile_fn


def covariance_source(model: Matern, coordinates: NDArray[np.float64]) -> Any:
    """Make the source of ``Sigma`` for ``ooc_chol.cholesky``: tiles are filled where they are needed, on the host or on a GPU.

    Parameters
    ----------
    model : Matern
        The covariance function.
    coordinates : (n, d) array
        Cartesian coordinates of the observations in matrix order, ``1 <= d <= 3``.

    Returns
    -------
    source
        What ``ooc_chol.from_function`` returns.
    """
    sites = np.ascontiguousarray(coordinates, dtype=np.float64)
    code = files(__package__).joinpath("matern.cu").read_text(encoding="utf-8")
    shape = np.int32(sites.shape[1]), np.int32(round(2 * model.smoothness))
    cuda = oc.cuda_source(code, "matern", sites, *shape, float(model.variance), float(model.range), float(model.nugget))
    return oc.from_function(len(sites), covariance_tiles(model, sites), cuda=cuda)


def cross_covariance(model: Matern, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance of the smooth field between two sets of sites, ``C(|a_i - b_j|)``, never with a nugget.

    Parameters
    ----------
    model : Matern
        The covariance function.
    a : (n, d) array
        Cartesian coordinates.
    b : (m, d) array
        Cartesian coordinates.

    Returns
    -------
    (n, m) array
        The covariances; the one large array that is allocated.
    """
    out = np.empty((len(a), len(b)))
    axes_a, axes_b = (np.ascontiguousarray(np.transpose(sites), dtype=np.float64) for sites in (a, b))
    _fill(model, axes_a, axes_b, out)
    return out


def _fill(model: Matern, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """``out[i, j] = C(|a[:, i] - b[:, j]|)`` in chunks of rows."""
    step = max(1, _CHUNK_ENTRIES // max(1, out.shape[1]))
    scratch = np.empty((min(step, out.shape[0]), out.shape[1]))
    for start in range(0, out.shape[0], step):
        chunk = out[start : start + step]
        spare = scratch[: len(chunk)]
        _distance(a[:, start : start + step], b, chunk, spare)
        chunk *= 1.0 / model.range
        _correlate(chunk, spare, model.smoothness)
        if model.variance != 1.0:
            chunk *= model.variance


def _distance(a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64], spare: NDArray[np.float64]) -> None:
    """``out[i, j] = |a[:, i] - b[:, j]|``."""
    np.subtract.outer(a[0], b[0], out=out)
    np.square(out, out=out)
    for axis in range(1, len(a)):
        np.subtract.outer(a[axis], b[axis], out=spare)
        np.square(spare, out=spare)
        out += spare
    np.sqrt(out, out=out)


def _correlate(r: NDArray[np.float64], spare: NDArray[np.float64], smoothness: float) -> None:
    """Replace ``r = h/a`` by the Matérn correlation; all terms are positive, so nothing cancels."""
    if smoothness == 0.5:
        # exp(-r)
        np.negative(r, out=r)
        np.exp(r, out=r)
        return
    np.negative(r, out=spare)
    np.exp(spare, out=spare)
    if smoothness == 1.5:
        # (1 + r) exp(-r)
        r += 1.0
    else:
        # (1 + r + r**2/3) exp(-r) with 3 + 3 r + r**2 = (r + 1.5)**2 + 0.75
        r += 1.5
        np.square(r, out=r)
        r += 0.75
        r *= 1.0 / 3.0
    r *= spare


def _effective_factor(smoothness: float) -> float:
    """The ``r`` at which the Matérn correlation is 0.05."""

    def excess(r: float) -> float:
        value = np.array([r])
        _correlate(value, np.empty(1), smoothness)
        return float(value[0]) - EFFECTIVE_CORRELATION

    return float(brentq(excess, 0.1, 20.0, xtol=1e-12))
