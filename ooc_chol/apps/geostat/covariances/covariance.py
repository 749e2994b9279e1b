"""Covariance matrices tile by tile: of a covariance function, of its derivatives, and between two sets of sites."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.matern import SMOOTHNESS as SMOOTHNESS
from ooc_chol.apps.geostat.covariances.matern import Matern as Matern
from ooc_chol.apps.geostat.covariances.model import AbstractCovariance as AbstractCovariance
from ooc_chol.apps.geostat.covariances.model import DeviceForm

#: Rows of a matrix between two sets of sites that one thread fills at once.
_ROWS = 512

TileFunction = Callable[[range, range, NDArray[np.float64], Any], None]


def covariance_tiles(model: AbstractCovariance, coordinates: ArrayLike, noise: ArrayLike | None = None) -> TileFunction:
    """Make the tile function of ``Sigma[i, j] = C(x_i, x_j) + (nugget + noise[i]) * (i == j)``.

    Parameters
    ----------
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    coordinates : (n, d) array
        Coordinates of the observations in matrix order, as the covariance function wants them.
    noise : (n,) array, optional
        Known variance of the error of each observation, added to the nugget; zero or positive, in the order of the coordinates.

    Returns
    -------
    callable
        ``tile_fn(rows, cols, out, stream)`` for ``ooc_chol.from_function``. It is pure and fills ``out`` by NumPy ufuncs, which
        release the interpreter lock; apart from three scratch arrays of 64 KiB (or one row of the tile) it allocates nothing.

    Raises
    ------
    ValueError
        The coordinates are not finite or no matrix, or the noise does not match them.

    Notes
    -----
    Cost about 4 ns per entry and core for a Matérn covariance of half-integer smoothness with vectorised ``exp``, 12 ns for any
    other. Differences of coordinates are taken before any scaling, so that distances keep their relative accuracy wherever the
    origin is.
    """
    axes = _axes(coordinates)
    errors = _noise(noise, axes.shape[1])

    def tile_fn(rows: range, cols: range, out: NDArray[np.float64], stream: Any) -> None:
        model.fill(axes[:, rows.start : rows.stop], axes[:, cols.start : cols.stop], out)
        own = _shared(rows, cols)
        # Sigma[i, i] += nugget + noise[i], by index
        out[own - rows.start, own - cols.start] += model.nugget + (0.0 if errors is None else errors[own])

    return tile_fn


def derivative_tiles(model: AbstractCovariance, coordinates: ArrayLike, name: str) -> TileFunction:
    """Make the tile function of ``dSigma / dname``, exact.

    Parameters
    ----------
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    coordinates : (n, d) array
        Coordinates of the sites, as for :func:`covariance_tiles`.
    name : str
        One of ``model.parameters``, ``"variance"``, or ``"nugget"``, whose derivative is the identity by index.

    Returns
    -------
    callable
        ``tile_fn(rows, cols, out, stream)``, as pure and as sparing as that of :func:`covariance_tiles`.

    Raises
    ------
    ValueError
        There is no such parameter, or the coordinates are not finite or no matrix.
    """
    known = ("variance", "nugget", *model.parameters)
    if name not in known:
        raise ValueError(f"there is no derivative in {name!r}; there are {', '.join(known)}")
    axes = _axes(coordinates)

    def tile_fn(rows: range, cols: range, out: NDArray[np.float64], stream: Any) -> None:
        if name != "nugget":
            model.fill_derivative(name, axes[:, rows.start : rows.stop], axes[:, cols.start : cols.stop], out)
            return
        out[...] = 0.0
        own = _shared(rows, cols)
        out[own - rows.start, own - cols.start] = 1.0

    return tile_fn


def covariance_source(model: AbstractCovariance, coordinates: ArrayLike, noise: ArrayLike | None = None) -> Any:
    """Make the source of ``Sigma`` for ``ooc_chol.cholesky``: tiles are filled where they are needed, on the host or on a GPU.

    Parameters
    ----------
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    coordinates : (n, d) array
        Coordinates of the sites, as for :func:`covariance_tiles`.
    noise : (n,) array, optional
        Known variance of the error of each observation, added to the nugget.

    Returns
    -------
    source
        Source, as ``ooc_chol.from_function`` returns it.

    Raises
    ------
    ValueError
        The coordinates are not finite or no matrix, or the noise does not match them.

    Notes
    -----
    CUDA devices evaluate the same tables as the host, a thread an entry.
    """
    sites = np.ascontiguousarray(tb.plain_array("coordinates", coordinates, np.float64))
    host = covariance_tiles(model, sites, noise)
    return oc.from_function(len(sites), host, cuda=_device_tiles(model, sites, noise))


def derivative_source(model: AbstractCovariance, coordinates: ArrayLike, name: str) -> Any:
    """Make the source of ``dSigma / dname`` for the traces of a factor: on the host and on GPUs."""
    sites = np.ascontiguousarray(tb.plain_array("coordinates", coordinates, np.float64))
    host, form = derivative_tiles(model, sites, name), model.derivative_form(name, sites)
    return oc.from_function(len(sites), host, cuda=_cuda_tiles(form, form.variances))


def cross_covariance(model: AbstractCovariance, a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance of the smooth field between two sets of sites, ``C(a_i, b_j)``, never with a nugget.

    Parameters
    ----------
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    a : (n, d) array
        Coordinates.
    b : (m, d) array
        Coordinates.

    Returns
    -------
    (n, m) array
        The covariances; the one large array that is allocated.

    Raises
    ------
    ValueError
        Coordinates are not finite or no matrix, or differ in number.
    """
    by_axis, other = _axes(a), _axes(b)
    if len(by_axis) != len(other):
        raise ValueError(f"sites of {len(by_axis)} and of {len(other)} coordinates have no covariance")
    out = np.empty((by_axis.shape[1], other.shape[1]))
    rows = [slice(start, start + _ROWS) for start in range(0, len(out), _ROWS)]
    tb.map_in_threads(lambda part: model.fill(by_axis[:, part], other, out[part]), rows)
    return out


def _axes(coordinates: ArrayLike) -> NDArray[np.float64]:
    """Coordinates by axis, checked."""
    axes = np.ascontiguousarray(np.transpose(tb.plain_array("coordinates", coordinates, np.float64)))
    if axes.ndim != 2:
        raise ValueError(f"coordinates must be an (n, d) array, but they have shape {np.shape(coordinates)}")
    if not np.isfinite(axes).all():
        raise ValueError(f"coordinates of site {int(np.argwhere(~np.isfinite(axes))[0][1])} (counted from zero) are not finite")
    return axes


def _noise(noise: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    """Variances of errors, checked."""
    if noise is None:
        return None
    errors = tb.plain_array("noise", noise, np.float64, copy=True)
    if errors.shape != (n,):
        raise ValueError(f"noise has shape {errors.shape}, but there are {n} observations, and it needs one variance for each")
    wrong = ~(np.isfinite(errors) & (errors >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"noise[{row}] is {errors[row]}, but a variance must be finite, and zero or positive")
    return errors


def _shared(rows: range, cols: range) -> NDArray[np.intp]:
    """Indices that are rows and columns of a tile."""
    return np.arange(max(rows.start, cols.start), min(rows.stop, cols.stop))


def _device_tiles(model: AbstractCovariance, sites: NDArray[np.float64], noise: ArrayLike | None) -> Any:
    """The tile function in CUDA C; the diagonal is given, as it has the errors of the observations."""
    form = model.device_form(sites)
    return _cuda_tiles(form, form.variances + model.nugget + (0.0 if noise is None else np.asarray(noise, dtype=np.float64)))


def _cuda_tiles(form: DeviceForm, diagonal: NDArray[np.float64]) -> Any:
    """A kernel of ``matern.cu`` for sites of so many coordinates."""
    code = files(__package__).joinpath("matern.cu").read_text(encoding="utf-8")
    define = f"#define DIMENSIONS {form.points.shape[1]}\n"
    return tb.cuda_source(define + code + form.code, form.kernel, np.ascontiguousarray(form.points), diagonal, *form.arguments)
