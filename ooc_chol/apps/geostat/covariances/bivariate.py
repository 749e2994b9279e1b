"""Two variables observed at sites of their own: the parsimonious bivariate Matérn covariance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from ooc_chol.apps.geostat.covariances.matern import Matern, MaternProfile
from ooc_chol.apps.geostat.covariances.matern_exact import check_smoothness_bounds
from ooc_chol.apps.geostat.covariances.model import (
    AbstractCovarianceOfFields,
    DeviceForm,
    check_nugget,
    check_positive,
    model_repr,
)
from ooc_chol.apps.geostat.covariances.radial import chunks
from ooc_chol.apps.geostat.covariances.scales import NEAR_HARD_BOUND, SEARCHED_SMOOTHNESS, Bound, Scale, length_scale

#: Factor of a correlation function, and the parameter in which that is differentiated, if any.
_Term = tuple[float, str | None]

#: Bounds of a search for the ratio of the variances, and for the correlation as a share of its bound, with its step.
_RATIO_BOUNDS = (1e-4, 1e4)
_LARGEST_SHARE = 0.999
_SHARE_STEP = 0.25

#: The pairs of variables that have covariances of their own.
_PAIRS = ((0, 0), (0, 1), (1, 1))


@dataclass(frozen=True)
class BivariateMatern(AbstractCovarianceOfFields):
    """Parsimonious bivariate Matérn covariance ``C_pq(h) = rho_pq sigma_p sigma_q M(h / range; (nu_p + nu_q) / 2)``.

    The last coordinate of a site is the number of the variable observed there, 0 or 1.

    Parameters
    ----------
    variance : float
        Variance ``sigma_0**2`` of the first variable. Positive.
    range : float
        Common range, in the unit of the coordinates. Positive.
    smoothness_1, smoothness_2 : float
        Smoothness of the first and the second variable.
    variance_ratio : float
        Variance of the second variable over that of the first. Positive.
    correlation : float
        ``rho_01``, correlation of the two variables at one place, within plus or minus :attr:`correlation_bound`.
    nugget : float
        Variance of the error of an observation, of either variable; where the errors of the two differ, give the known variances
        as ``noise``. Zero or positive.
    dimension : int
        Number of space coordinates, 1 to 3, which the bound depends on.

    Raises
    ------
    ValueError
        A parameter is out of its bounds; the text tells the bound of the correlation.

    Notes
    -----
    Gneiting, Kleiber and Schlather (2010), *Matérn cross-covariance functions for multivariate random fields*, JASA 105, theorem
    3. The spectral density of a Matérn covariance in d dimensions is ``gamma(nu + d/2) / gamma(nu)`` times a power
    ``-nu - d/2`` of a quadratic in the frequency. With a common range and the mean smoothness the powers in
    ``f_01**2 <= f_00 f_11`` are equal on both sides and leave the bound, which is sharp in that dimension and valid in lower
    ones. The derivative in ``variance`` is that of both variables at a fixed ratio.

    Examples
    --------
    >>> round(
    ...     BivariateMatern(1.0, 0.2, 0.5, 1.5, 2.0, 0.6).correlation_bound, 4
    ... )
    0.866
    """

    variance: float
    range: float
    smoothness_1: float
    smoothness_2: float
    variance_ratio: float
    correlation: float
    nugget: float = 0.0
    dimension: int = 2

    __repr__ = model_repr

    def __post_init__(self) -> None:
        check_smoothness_bounds(self.smoothness_1)
        check_smoothness_bounds(self.smoothness_2)
        check_positive(variance=self.variance, range=self.range, variance_ratio=self.variance_ratio)
        check_nugget(self.nugget)
        if self.dimension not in (1, 2, 3):
            raise ValueError(f"dimension is {self.dimension}, but sites have 1, 2 or 3 coordinates of space")
        if not abs(self.correlation) <= self.correlation_bound:
            bound = f"{self.correlation_bound:.6g}"
            raise ValueError(
                f"correlation is {self.correlation}, but with smoothnesses {self.smoothness_1} and {self.smoothness_2} in "
                f"{self.dimension} dimensions it must lie within -{bound} and {bound}, or the covariance is not positive definite"
            )

    @property
    def correlation_bound(self) -> float:
        """Largest magnitude of the correlation: ``sqrt(g(nu_1) g(nu_2)) / g(nu_12)``, ``g(x) = gamma(x + d/2) / gamma(x)``."""
        log_g = [float(gammaln(nu + 0.5 * self.dimension) - gammaln(nu)) for nu in (*self._smoothnesses, self._mean_smoothness)]
        return math.exp(0.5 * (log_g[0] + log_g[1]) - log_g[2])

    @property
    def parameters(self) -> tuple[str, ...]:
        """Range, smoothnesses, ratio of variances and correlation."""
        return ("range", "smoothness_1", "smoothness_2", "variance_ratio", "correlation")

    def scales(self, coordinates: NDArray[np.float64]) -> dict[str, Scale]:
        """Logarithms, but for the correlation, of which the share of :attr:`correlation_bound` is searched for."""
        self._sites_by_variable(coordinates.T)
        share = Scale(
            -_LARGEST_SHARE,
            _LARGEST_SHARE,
            is_logarithmic=False,
            step=_SHARE_STEP,
            near=NEAR_HARD_BOUND,
            bound=BivariateMatern._bound_and_slopes,
        )
        return {
            "range": length_scale(coordinates[:, :-1]),
            "smoothness_1": Scale(*SEARCHED_SMOOTHNESS),
            "smoothness_2": Scale(*SEARCHED_SMOOTHNESS),
            "variance_ratio": Scale(*_RATIO_BOUNDS),
            "correlation": share,
        }

    def site_variances(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """The variance of the variable observed there."""
        self._sites_by_variable(coordinates.T)
        return np.where(coordinates[:, -1] == 0.0, self._factor(0, 0), self._factor(1, 1))

    def comparable_sites(self, coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
        """The places in units of the range, whichever the variable."""
        self._sites_by_variable(coordinates.T)
        return coordinates[:, :-1] / self.range

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write the covariances, pair by pair of the variables."""
        self._fill_terms({pair: (self._factor(*pair), None) for pair in _PAIRS}, a, b, out)

    def _fill_parameter(self, name: str, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """The derivative, pair by pair."""
        self._fill_terms(self._derivative_terms(name), a, b, out)

    def derivative_form(self, name: str, coordinates: NDArray[np.float64]) -> DeviceForm:
        """As :meth:`device_form`, with the table of a derivative for each pair, of zeros for one that has none."""
        terms = self._derivative_terms(name)
        variances = np.zeros(2)
        tables = []
        for pair in _PAIRS:
            factor, by = terms.get(pair, (0.0, None))
            profile = MaternProfile(self._smoothness_of(pair))
            own = profile.table if by is None else profile.derivative_table(None if by == "range" else by)
            tables.append(own.arguments(-factor / self.range if by == "range" else factor))
            if pair[0] == pair[1] and by is None:
                variances[pair[0]] = factor
        return self._form(coordinates, variances[coordinates[:, -1].astype(int)], tables)

    def device_form(self, coordinates: NDArray[np.float64]) -> DeviceForm:
        """The sites themselves, and a table for each pair of variables."""
        tables = [MaternProfile(self._smoothness_of(pair)).table.arguments(self._factor(*pair)) for pair in _PAIRS]
        return self._form(coordinates, self.site_variances(coordinates), tables)

    def _form(
        self, coordinates: NDArray[np.float64], variances: NDArray[np.float64], tables: Sequence[tuple[Any, ...]]
    ) -> DeviceForm:
        """Arguments of the kernel, with these tables."""
        scale = float(1.0 / self.range)
        return DeviceForm("bivariate", coordinates, variances, (scale, *(part for table in tables for part in table)))

    def _smoothness_of(self, pair: tuple[int, int]) -> float:
        """Smoothness of the covariance of two variables."""
        return self._smoothnesses[pair[0]] if pair[0] == pair[1] else self._mean_smoothness

    def _bound_and_slopes(self) -> Bound:
        """:attr:`correlation_bound`, and the derivatives of its logarithm by the smoothnesses."""

        def slope(nu: float) -> float:
            return float(digamma(nu + 0.5 * self.dimension) - digamma(nu))

        of_mean = slope(self._mean_smoothness)
        slopes = (0.5 * (slope(nu) - of_mean) for nu in self._smoothnesses)
        return self.correlation_bound, dict(zip(("smoothness_1", "smoothness_2"), slopes, strict=True))

    @property
    def _smoothnesses(self) -> tuple[float, float]:
        """Smoothness of each variable."""
        return self.smoothness_1, self.smoothness_2

    @property
    def _mean_smoothness(self) -> float:
        """Smoothness of the cross-covariance."""
        return 0.5 * (self.smoothness_1 + self.smoothness_2)

    def _factor(self, p: int, q: int) -> float:
        """``rho_pq sigma_p sigma_q``."""
        if p == q:
            return self.variance * (self.variance_ratio if p else 1.0)
        return self.correlation * self.variance * math.sqrt(self.variance_ratio)

    def _derivative_terms(self, name: str) -> Mapping[tuple[int, int], _Term]:
        """By pair; a pair that does not depend on the parameter has none."""
        factors = {pair: self._factor(*pair) for pair in _PAIRS}
        cross = self.variance * math.sqrt(self.variance_ratio)
        terms: dict[str, Mapping[tuple[int, int], _Term]] = {
            "range": {pair: (factor, "range") for pair, factor in factors.items()},
            "smoothness_1": {(0, 0): (factors[0, 0], "smoothness"), (0, 1): (0.5 * factors[0, 1], "smoothness")},
            "smoothness_2": {(1, 1): (factors[1, 1], "smoothness"), (0, 1): (0.5 * factors[0, 1], "smoothness")},
            "variance_ratio": {(1, 1): (self.variance, None), (0, 1): (0.5 * factors[0, 1] / self.variance_ratio, None)},
            "correlation": {(0, 1): (cross, None)},
        }
        return terms[name]

    def _fill_terms(
        self, terms: Mapping[tuple[int, int], _Term], a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:
        """Write the term of the pair of variables of each entry, zero where there is none."""
        if out.ndim > 2:
            self._fill_stack(terms, a, b, out)
            return
        rows_of, columns_of = self._sites_by_variable(a), self._sites_by_variable(b)
        for rows, chunk, _ in chunks(out, 0):
            chunk[...] = 0.0
            for p, q in ((0, 0), (0, 1), (1, 0), (1, 1)):
                own = rows_of[p][(rows_of[p] >= rows.start) & (rows_of[p] < rows.stop)]
                term = terms.get((min(p, q), max(p, q)))
                if term is None or not own.size or not columns_of[q].size:
                    continue
                part = np.empty((own.size, columns_of[q].size))
                self._fill_term(term, (p, q), (a[:-1, own], b[:-1, columns_of[q]]), part)
                chunk[np.ix_(own - rows.start, columns_of[q])] = part

    def _fill_stack(
        self, terms: Mapping[tuple[int, int], _Term], a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]
    ) -> None:
        """The same for a stack of small matrices: every term for all entries, and of each what its pair is."""
        self._sites_by_variable(a.reshape(len(a), -1))
        self._sites_by_variable(b.reshape(len(b), -1))
        for part, chunk, scratch in chunks(out, 1):
            chunk[...] = 0.0
            pair = a[-1, part][..., :, None] + b[-1, part][..., None, :]
            for (p, q), term in terms.items():
                self._fill_term(term, (p, q), (a[:-1, part], b[:-1, part]), scratch[0])
                np.copyto(chunk, scratch[0], where=pair == p + q)

    def _fill_term(
        self, term: _Term, pair: tuple[int, int], sites: tuple[NDArray[np.float64], NDArray[np.float64]], out: NDArray[np.float64]
    ) -> None:
        """Write one term at the sites of two variables."""
        factor, name = term
        matern = Matern(1.0, self.range, self._smoothness_of(pair))
        if name is None:
            matern.fill(*sites, out)
        else:
            matern.fill_derivative(name, *sites, out)
        out *= factor

    def _sites_by_variable(self, sites: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Indices of the sites of each variable."""
        if not 2 <= len(sites) <= self.dimension + 1:
            raise ValueError(
                f"sites have {len(sites)} coordinates, but BivariateMatern of dimension {self.dimension} needs up to "
                f"{self.dimension} of space, and then the number of the variable"
            )
        first, second = (np.flatnonzero(sites[-1] == number) for number in (0, 1))
        if first.size + second.size < sites.shape[1]:
            raise ValueError("the last coordinate of a site must be the number of its variable, 0 or 1")
        return first, second
