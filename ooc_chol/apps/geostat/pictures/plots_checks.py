"""Pictures to judge a fit by: variogram with model and envelope, profile of a likelihood, residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, chdtri, ndtri

from ooc_chol.apps.geostat.covariances.azimuth import read_values
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, Matern
from ooc_chol.apps.geostat.covariances.nested import Nested
from ooc_chol.apps.geostat.covariances.planar import is_directional
from ooc_chol.apps.geostat.covariances.reach import reach
from ooc_chol.apps.geostat.pictures.labels import BLUE, GREY, VERMILION, FigureWords, distance_label, semivariance_label
from ooc_chol.apps.geostat.pictures.plots import MapLabels, new_figure
from ooc_chol.apps.geostat.pictures.variogram import Envelope, model_variogram
from ooc_chol.apps.geostat.variography.empirical import Variogram

#: Diverging, with purple against orange.
_DIVERGING = "PuOr"

#: A standardised residual beyond this is drawn in the colour of this.
_LARGE_RESIDUAL = 3.0

_CURVE_POINTS = 400


def variogram_figure(
    variogram: Variogram, words: FigureWords, *, model: AbstractCovariance | None = None, envelope: Envelope | None = None
) -> Any:
    """Draw an empirical semivariogram, the number of pairs below it, and a model with its envelope.

    Parameters
    ----------
    variogram : Variogram
        Points.
    words : FigureWords
        Titles and units.
    model : AbstractCovariance, optional
        A line, with its sill; the nugget is where it starts.
    envelope : Envelope, optional
        A band.

    Returns
    -------
    matplotlib.figure.Figure
        For :func:`save_figure`; its axes are the variogram and the bars of pairs.

    Raises
    ------
    ValueError
        The model is no function of distance alone, and none of the direction of the points.
    MissingExtraError
        Matplotlib is not installed.
    """
    figure = new_figure((8, 6))
    axis, bars = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    if envelope is not None:
        label = f"{100 * envelope.level:g} % of {envelope.simulations} simulations, at each distance"
        axis.fill_between(envelope.distance, envelope.lower, envelope.upper, color=BLUE, alpha=0.2, linewidth=0, label=label)
    if model is not None:
        h = np.linspace(0.0, variogram.edges[-1], _CURVE_POINTS + 1)[1:]
        azimuth = None if variogram.direction is None or not is_directional(model) else variogram.direction.azimuth
        axis.plot(h, model_variogram(model, h, azimuth=azimuth), color=BLUE, label=_model_label(model, words.distance))
        axis.axhline(model.sill, color=GREY, linestyle="--", linewidth=1, label=f"sill {model.sill:.4g}")
    name = {"matheron": "Matheron", "cressie": "Cressie and Hawkins"}[variogram.estimator]
    axis.plot(variogram.distance, variogram.semivariance, "o", color=VERMILION, label=f"{name}, {len(variogram.sites)} sites")
    axis.set_ylim(bottom=0.0)
    axis.set_ylabel(semivariance_label(words))
    axis.legend(loc="best")
    axis.set_title(words.title)
    bars.bar(variogram.distance, variogram.pairs, width=0.6 * float(np.diff(variogram.edges[:2])[0]), color=GREY)
    bars.set_ylabel("pairs")
    bars.set_xlabel(distance_label(words))
    bars.set_xlim(0.0, variogram.edges[-1])
    return figure


def _model_label(model: AbstractCovariance, unit: str) -> str:
    """Label of a model's line, in a legend."""
    if isinstance(model, Matern):
        return f"Matérn, smoothness {model.smoothness:g}, range {model.range:.4g}{_space(unit)}"
    if isinstance(model, Nested):
        lengths = " and ".join(f"{reach(component):.4g}" for component in model.components)
        return f"{len(model.components)} nested structures, effective ranges {lengths}{_space(unit)}"
    values = ", ".join(f"{name} {value:.4g}" for name, value in read_values(model.values).items())
    return f"{type(model).__name__}, {values}"


def profile_figure(parameter: ArrayLike, loglik: ArrayLike, words: FigureWords, *, name: str, level: float = 0.95) -> Any:
    """Draw a profile log-likelihood, relative to its largest value, with the interval that a likelihood ratio test accepts.

    Parameters
    ----------
    parameter : (k,) array
        Ascending values of one parameter, at least 3; where they are all positive the axis is logarithmic.
    loglik : (k,) array
        Log-likelihood maximised over all others at each; minus infinity where there is none.
    words : FigureWords
        The title; ``distance`` is not used.
    name : str
        Name of the parameter, with its unit.
    level : float
        Probability of the interval.

    Returns
    -------
    matplotlib.figure.Figure
        For :func:`save_figure`.

    Raises
    ------
    ValueError
        Shapes differ, the values are not ascending, or no likelihood is finite.
    MissingExtraError
        Matplotlib is not installed.

    Notes
    -----
    The interval is where the curve is above ``-chi2(1, level) / 2``, by linear interpolation between the points as they are
    drawn; where the curve does not fall below, it is drawn to the edge.
    """
    values, heights = np.asarray(parameter, dtype=np.float64), np.asarray(loglik, dtype=np.float64)
    if values.shape != heights.shape or values.ndim != 1 or len(values) < 3 or not np.all(np.diff(values) > 0):
        raise ValueError(
            f"a profile needs 3 or more ascending values and as many likelihoods, not {values.shape}, {heights.shape}"
        )
    if not np.isfinite(heights).any() or np.isnan(heights).any():
        raise ValueError("a profile needs likelihoods that are numbers, one of them finite")
    relative, drop = heights - heights.max(), -0.5 * float(chdtri(1, 1 - level))
    figure = new_figure((7, 5))
    axis = figure.subplots()
    low, high = profile_interval(values, relative, drop)
    axis.axvspan(low, high, color=BLUE, alpha=0.15, linewidth=0, label=f"{100 * level:g} % interval: {low:.4g} to {high:.4g}")
    finite = np.isfinite(relative)
    axis.plot(values[finite], relative[finite], "o-", color=BLUE, markersize=4, label="profile log-likelihood")
    axis.axhline(drop, color=GREY, linestyle="--", linewidth=1, label=f"{drop:.3g}")
    best = int(np.argmax(heights))
    axis.plot(values[best], 0.0, "D", color=VERMILION, label=f"largest: {heights[best]:.6g} at {values[best]:.4g}")
    if values[0] > 0:
        axis.set_xscale("log")
    axis.set_xlabel(name)
    axis.set_ylabel("log-likelihood below its largest")
    axis.set_title(words.title)
    axis.legend()
    return figure


def profile_interval(values: NDArray[np.float64], relative: NDArray[np.float64], drop: float) -> tuple[float, float]:
    """Where a profile around its maximum is above ``drop``."""
    best = int(np.argmax(relative))
    ends = []
    for step, last in ((-1, 0), (1, len(values) - 1)):
        k = best
        while k != last and relative[k + step] >= drop:
            k += step
        if k == last or not np.isfinite(relative[k + step]):
            ends.append(float(values[k]))
        else:
            share = (relative[k] - drop) / (relative[k] - relative[k + step])
            near, far = float(values[k]), float(values[k + step])
            # where the axis is logarithmic, so is the line between two points
            ends.append(near * (far / near) ** share if values[0] > 0 else near + share * (far - near))
    return ends[0], ends[1]


def residuals_figure(residuals: NDArray[np.float64], positions: NDArray[np.float64], labels: MapLabels) -> Any:
    """Draw standardised residuals: histogram with the normal density, quantiles with a 95 % band, and, in two dimensions, a map.

    Parameters
    ----------
    residuals : (n,) array
        From :func:`standardised_residuals`.
    positions : (n, d) array
        Map coordinates; the map is drawn when ``d`` is 2.
    labels : MapLabels
        Titles and units.

    Returns
    -------
    matplotlib.figure.Figure
        For :func:`save_figure`.

    Raises
    ------
    MissingExtraError
        Matplotlib is not installed.

    Notes
    -----
    The band holds each ordered residual by itself with probability 0.95 when all are independent standard normals: the ``k``-th
    smallest of ``n`` uniforms has a beta distribution with parameters ``k`` and ``n + 1 - k``.
    """
    count = 3 if positions.shape[1] == 2 else 2
    figure = new_figure((5 * count, 4.8))
    axes = figure.subplots(1, count)
    _histogram(axes[0], residuals)
    _quantiles(axes[1], residuals)
    if count == 3:
        _residual_map(figure, axes[2], residuals, positions, labels)
    figure.suptitle(labels.title)
    return figure


def _histogram(axis: Any, residuals: NDArray[np.float64]) -> None:
    """Density of the residuals beside the normal one."""
    reach = max(4.0, float(np.abs(residuals).max()))
    axis.hist(residuals, bins="auto", density=True, color=GREY, label=f"{len(residuals)} residuals")
    w = np.linspace(-reach, reach, _CURVE_POINTS)
    axis.plot(w, np.exp(-0.5 * w**2) / np.sqrt(2 * np.pi), color=BLUE, label="standard normal")
    axis.set_xlabel("standardised residual")
    axis.set_ylabel("density")
    axis.set_title(f"mean {residuals.mean():.3f}, standard deviation {residuals.std():.3f}")
    axis.legend()


def _quantiles(axis: Any, residuals: NDArray[np.float64]) -> None:
    """Ordered residuals against normal quantiles."""
    n = len(residuals)
    k = np.arange(1, n + 1)
    expected = ndtri((k - 0.5) / n)
    lower, upper = (ndtri(betaincinv(k, n + 1 - k, p)) for p in (0.025, 0.975))
    axis.fill_between(expected, lower, upper, color=BLUE, alpha=0.2, linewidth=0, label="95 % band, point by point")
    axis.plot(expected[[0, -1]], expected[[0, -1]], color=BLUE, linewidth=1)
    axis.plot(expected, np.sort(residuals), ".", color=VERMILION, markersize=4, label="residuals")
    axis.set_xlabel("quantile of the standard normal")
    axis.set_ylabel("ordered residual")
    axis.set_title("quantiles")
    axis.legend()


def _residual_map(
    figure: Any, axis: Any, residuals: NDArray[np.float64], positions: NDArray[np.float64], labels: MapLabels
) -> None:
    """Draw the residuals at their sites."""
    area = float(np.clip(20_000 / len(residuals), 2.0, 50.0))
    # the largest on top
    order = np.argsort(np.abs(residuals))
    points = axis.scatter(
        *positions[order].T,
        c=residuals[order],
        s=area,
        cmap=_DIVERGING,
        vmin=-_LARGE_RESIDUAL,
        vmax=_LARGE_RESIDUAL,
        edgecolors=GREY,
        linewidths=0.2,
    )
    axis.set_aspect(labels.aspect)
    axis.set_xlabel(labels.x)
    axis.set_ylabel(labels.y)
    axis.set_title(f"{int(np.sum(np.abs(residuals) > _LARGE_RESIDUAL))} beyond {_LARGE_RESIDUAL:g} standard errors")
    figure.colorbar(points, ax=axis, label="standardised residual", extend="both", fraction=0.05)


def _space(unit: str) -> str:
    return f" {unit}" if unit else ""
