"""Observations: sites, values and the columns of the mean, checked once so that the numerical modules need not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.rows import Rows, counted_rows

#: Distances up to so many times the distance from the origin are none: what is left of 360 degrees of longitude, and of a pole's.
ROUNDINGS = 16 * float(np.finfo(np.float64).eps)

#: Places that are joined to one at once.
_JOINED = 8

#: Largest value, and least difference of values unless they are all equal: their squares, times what fits make of them, are
#: numbers of float64. The largest coordinate and the least extent, and what the largest covariate is between, likewise.
_LARGEST, _LEAST = 2.0**502, 2.0**-480
_LARGEST_COORDINATE, _LEAST_EXTENT = 2.0**400, 2.0**-400
_LARGEST_COVARIATE, _LEAST_COVARIATE = 2.0**350, 2.0**-350

#: ``"constant"``: an unknown intercept; ``"zero"``: none. Covariates are added to either.
Mean = Literal["constant", "zero"]


@dataclass(frozen=True, eq=False)
class Observations:
    """Values at sites, with the design matrix of their mean; made by :func:`make_observations`.

    Parameters
    ----------
    coordinates : (n, d) array
        Cartesian coordinates.
    values : (n,) array
        The observed values, finite.
    design : (n, p) array
        Columns of the mean ``design @ coefficients``; ``p`` may be 0: then the mean is zero.
    mean_columns : tuple of str
        Names of the ``p`` columns.
    mean : {"constant", "zero"}
        True if the first column is an intercept.
    error_variances : (n,) array or None
        Known variance of the error of each observation, in squared units of the values, besides the nugget.
    space : int or None
        How many of the coordinates, the first ones, are space, where the others are covariates of a covariance function; None:
        all count as such.
    rows : Rows or None
        Names of observations in messages: rows of the caller's arrays, or lines of a file; None: its number here.
    """

    coordinates: NDArray[np.float64]
    values: NDArray[np.float64]
    design: NDArray[np.float64]
    mean_columns: tuple[str, ...]
    mean: Mean
    error_variances: NDArray[np.float64] | None = None
    space: int | None = None
    rows: Rows | None = field(default=None, repr=False)

    __repr__ = tb.brief_repr

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self.values)

    @property
    def places(self) -> NDArray[np.float64]:
        """Coordinates without covariates of a covariance function, shape ``(n, d)``."""
        return self.coordinates[:, : self.space]

    @property
    def diameter(self) -> float:
        """Diagonal of the bounding box of the sites, in the unit of the coordinates."""
        return float(np.linalg.norm(np.ptp(self.places, axis=0)))

    @property
    def duplicates(self) -> int:
        """Observations at a place where another, earlier one already is, as far as rounding can tell."""
        return self.n - count_places(self.places)

    @property
    def named_rows(self) -> Rows:
        """Rows of the observations, as messages call them."""
        return counted_rows(self.n) if self.rows is None else self.rows

    def take(self, indices: ArrayLike) -> Observations:
        """The observations at ``indices``, in that order.

        Parameters
        ----------
        indices : (m,) array
            Indices into this set.

        Returns
        -------
        Observations
            A copy with ``m`` observations, which messages call by their rows in the data that were given at first.
        """
        indices = tb.plain_array("indices", indices)
        errors = None if self.error_variances is None else self.error_variances[indices]
        rows = self.named_rows.take(indices)
        return replace(
            self,
            coordinates=self.coordinates[indices],
            values=self.values[indices],
            design=self.design[indices],
            error_variances=errors,
            rows=rows,
        )

    def scaled_errors(self, variance: float) -> NDArray[np.float64] | None:
        """``error_variances`` over ``variance``: what the diagonal of a correlation matrix has of them, shape ``(n,)``."""
        return None if self.error_variances is None else self.error_variances / variance


def make_observations(
    coordinates: ArrayLike,
    values: ArrayLike,
    *,
    covariates: ArrayLike | None = None,
    covariate_names: Sequence[str] | None = None,
    mean: Mean = "constant",
    error_variances: ArrayLike | None = None,
    space: int | None = None,
) -> Observations:
    """Check and bundle values, sites and covariates.

    Parameters
    ----------
    coordinates : (n, d) or (n,) array
        Cartesian coordinates of any dimension; for longitude and latitude see :func:`chordal_coordinates`.
    values : (n,) array
        The observed values, finite.
    covariates : (n, q) or (n,) array, optional
        Further columns of the mean.
    covariate_names : sequence of str, optional
        Their names; ``covariate1, ...`` when not given.
    mean : {"constant", "zero"}
        True if the mean has an unknown intercept.
    error_variances : (n,) array, optional
        Known variance of the error of each observation, such as the squared standard error that a laboratory states; zero or
        positive. The nugget comes on top: variation at short distances, and errors that nobody states.
    space : int, optional
        How many of the coordinates are space, where those after them are covariates of a :class:`NonstationaryMatern`: order in
        the matrix, folds, extents and variograms are of these then. All when not given.

    Returns
    -------
    Observations
        The checked set, all arrays float64.

    Raises
    ------
    ValueError
        Shapes disagree, an entry is not finite, or its square is no number of float64, or there are fewer observations than
        columns of the mean plus the covariance's parameters.

    Examples
    --------
    >>> make_observations(
    ...     [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 1.0]],
    ...     [1.0, 2.0, 0.5, 3.0],
    ... ).mean_columns
    ('intercept',)
    """
    sites = as_sites(coordinates)
    _check_extent(sites)
    numbers = tb.plain_array("values", values, np.float64, copy=True)
    if numbers.shape != (len(sites),):
        raise ValueError(f"values have shape {numbers.shape}, but there are {len(sites)} sites: one value per site is needed")
    _check_finite("values", numbers)
    check_size(numbers, counted_rows(len(sites)))
    design = design_matrix(len(sites), covariates, mean)
    names = _column_names(design.shape[1], covariate_names, mean)
    _check_columns(design, names)
    if len(sites) < design.shape[1] + 3:
        raise ValueError(
            f"{len(sites)} observations are too few for {design.shape[1]} columns of the mean and 3 covariance parameters"
        )
    errors = None if error_variances is None else as_error_variances(error_variances, len(sites))
    if space is not None and not 1 <= space <= sites.shape[1]:
        raise ValueError(f"space is {space}, but of {sites.shape[1]} coordinates 1 to {sites.shape[1]} can be space")
    return Observations(sites, numbers, design, names, mean, errors, space)


def check_is_observations(observations: object) -> None:
    """Raise ``TypeError`` for what is no :class:`Observations`."""
    if not isinstance(observations, Observations):
        given = type(observations).__name__
        raise TypeError(f"observations is a {given}; give Observations, which make_observations(sites, values) makes of arrays")


def as_error_variances(error_variances: ArrayLike, n: int) -> NDArray[np.float64]:
    """Check known variances of errors."""
    errors = tb.plain_array("error_variances", error_variances, np.float64, copy=True)
    if errors.shape != (n,):
        raise ValueError(f"error variances have shape {errors.shape}, but there are {n} observations, and each needs one")
    wrong = ~(np.isfinite(errors) & (errors >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"the error variance of observation {row} (counted from zero) is {errors[row]}, but it must be finite, and zero or "
            "positive"
        )
    return errors


def as_sites(coordinates: ArrayLike) -> NDArray[np.float64]:
    """Check coordinates and return them as an ``(n, d)`` float64 array."""
    sites = tb.plain_array("coordinates", coordinates, np.float64, copy=True)
    sites = sites[:, np.newaxis] if sites.ndim == 1 else sites
    if sites.ndim != 2 or sites.size == 0:
        raise ValueError(f"coordinates have shape {sites.shape}, but (n, d) with n >= 1 and d >= 1 is needed")
    _check_finite("coordinates", sites)
    check_coordinates(sites, counted_rows(len(sites), "row"))
    return sites


def check_coordinates(sites: NDArray[np.float64], rows: Rows) -> None:
    """Raise ``ValueError`` where the square of a coordinate is no number of float64."""
    if (largest := np.abs(sites).max()) > _LARGEST_COORDINATE:
        row = int(np.argwhere(np.abs(sites) == largest)[0][0])
        raise ValueError(
            f"a coordinate of {rows.named(row)} is {largest:g}, whose square is no number of float64; mend it if it stands for a "
            "gap, or give coordinates in a larger unit"
        )


def _check_extent(sites: NDArray[np.float64]) -> None:
    """Raise ``ValueError`` where squares of distances are too small for float64."""
    extent = float(np.ptp(sites, axis=0).max())
    if 0.0 < extent < _LEAST_EXTENT:
        raise ValueError(
            f"the sites are within {extent:g} of each other, and squares of such distances are no numbers of float64; give "
            "coordinates in a smaller unit"
        )


def design_matrix(n: int, covariates: ArrayLike | None, mean: Mean) -> NDArray[np.float64]:
    """Columns of the mean at ``n`` sites: an intercept unless ``mean="zero"``, then the covariates."""
    if mean not in ("constant", "zero"):
        raise ValueError(f"mean is {mean!r}, but there are 'constant' and 'zero'")
    columns = [np.ones((n, 1))] if mean == "constant" else []
    if covariates is not None:
        extra = tb.plain_array("covariates", covariates, np.float64, copy=True)
        extra = extra[:, np.newaxis] if extra.ndim == 1 else extra
        if extra.ndim != 2 or len(extra) != n:
            raise ValueError(f"covariates have shape {extra.shape}, but there are {n} sites")
        _check_finite("covariates", extra)
        columns.append(extra)
    return np.hstack(columns) if columns else np.empty((n, 0))


def count_places(places: NDArray[np.float64]) -> int:
    """How many places there are, those that rounding cannot tell apart counted once."""
    with tb.guarded_imports():
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components
        from scipy.spatial import cKDTree  # together 0.1 s

    distinct = np.unique(places, axis=0)
    while True:
        n, lengths = len(distinct), np.linalg.norm(distinct, axis=1)
        apart, near = cKDTree(distinct).query(distinct, k=np.arange(1, min(n, _JOINED) + 1))
        first, which = np.nonzero(apart <= ROUNDINGS * np.maximum(lengths[:, np.newaxis], lengths[near]))
        joined = coo_array((np.ones(len(first)), (first, near[first, which])), shape=(n, n))
        count, labels = connected_components(joined, directed=False)
        if count == n:
            return n
        # of more places than were joined at once some are left
        distinct = distinct[np.unique(labels, return_index=True)[1]]


def least_squares_residuals(design: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Residuals of values after ordinary least squares on the columns of a mean."""
    return np.asarray(values - design @ np.linalg.lstsq(design, values, rcond=None)[0])


def _column_names(p: int, covariate_names: Sequence[str] | None, mean: Mean) -> tuple[str, ...]:
    """Names of all ``p`` columns of the mean."""
    intercept = ("intercept",) if mean == "constant" else ()
    q = p - len(intercept)
    names = tuple(covariate_names) if covariate_names is not None else tuple(f"covariate{k + 1}" for k in range(q))
    if len(names) != q:
        raise ValueError(f"{len(names)} covariate names for {q} covariates")
    return intercept + names


def check_size(values: NDArray[np.float64], rows: Rows) -> None:
    """Raise ``ValueError`` where squares of the values' differences, which variances are, are no numbers of float64."""
    largest = int(np.argmax(np.abs(values)))
    if abs(values[largest]) > _LARGEST:
        raise ValueError(
            f"the value of {rows.named(largest)} is {values[largest]:g}, and sums of squares of such are no numbers of float64; "
            "drop it if it stands for a gap, or divide all values by a power of ten"
        )
    spread = float(np.ptp(values))
    if 0.0 < spread < _LEAST:
        power = min(300, -math.floor(math.log10(spread)))
        raise ValueError(
            f"the values differ by {spread:g} at most, of {rows.named(int(np.argmin(values)), int(np.argmax(values)))}, and "
            f"squares of that are no numbers of float64; multiply all values by 1e{power}"
        )


def _check_columns(design: NDArray[np.float64], names: tuple[str, ...]) -> None:
    """Raise ``ValueError`` where squares of a column of the mean are no numbers of float64, and no zeros either."""
    for name, column in zip(names, design.T, strict=True):
        largest = float(np.abs(column).max())
        if largest and not _LEAST_COVARIATE <= largest <= _LARGEST_COVARIATE:
            how, power = ("divide", 1) if largest > 1 else ("multiply", -1)
            raise ValueError(
                f"values of column {name!r} of the mean reach {largest:g}, and products of such are no numbers of float64; {how} "
                f"the column by 1e{min(300, power * math.floor(math.log10(largest)))}"
            )


def _check_finite(what: str, array: NDArray[np.float64]) -> None:
    """Raise ``ValueError`` naming the first row that is not finite."""
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(f"{what} hold a NaN or an infinity, first in row {row} (counted from zero); drop or mend it")
