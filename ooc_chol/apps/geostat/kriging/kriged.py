"""Simple, ordinary and universal kriging by half-solves with the out-of-core factor, in batches of bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, covariance_source, cross_covariance
from ooc_chol.apps.geostat.data.observations import Observations, as_sites, design_matrix
from ooc_chol.apps.geostat.estimation.mean import Whitened, whiten
from ooc_chol.apps.geostat.kriging.certified_kriging import AtSites, CertifiedMean, certified_mean, half_widths
from ooc_chol.apps.geostat.kriging.predicted import Prediction, Target, check_target, new_errors

#: Mean known; constant, estimated; of other columns, estimated.
KrigingKind = Literal["simple", "ordinary", "universal"]

#: Bytes that one batch of new sites may take: cross-covariances and the two copies that a half-solve needs.
BATCH_BYTES = 96 * 2**20


class Kriging:
    """A factored data set, ready to predict; made by :func:`~ooc_chol.apps.geostat.kriging`.

    Parameters
    ----------
    factor : ooc_chol.CholeskyFactor
        Factor of the correlation matrix, open.
    observations : Observations
        The data, in the order of the factor's rows.
    model : AbstractCovariance
        Covariance function with its parameters, variance and nugget.
    coefficients : (p,) array, optional
        Known coefficients of the mean; they are estimated when not given.
    order : (n,) array, optional
        Indices of the rows' observations in the caller's order; as they are when not given.

    Raises
    ------
    ValueError
        There is not one coefficient per column of the mean, one is not finite, or the columns are linearly dependent.
    """

    def __init__(
        self,
        factor: oc.CholeskyFactor,
        observations: Observations,
        model: AbstractCovariance,
        *,
        coefficients: ArrayLike | None = None,
        order: NDArray[np.intp] | None = None,
    ) -> None:
        self.factor = factor
        self.model = model
        self.observations = observations
        self.order = np.arange(observations.n) if order is None else order
        #: The data multiplied by ``inv(L)``; with a known mean no column of the design is left to estimate.
        self.whitened: Whitened = (
            whiten(factor, observations) if coefficients is None else _whiten_known(factor, observations, coefficients)
        )

    def __repr__(self) -> str:
        return tb.one_line(self, {"kind": self.kind, "n": self.observations.n, "model": type(self.model).__name__})

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """Coefficients of the mean, known or by generalised least squares, shape ``(p,)``."""
        return self.whitened.coefficients

    @property
    def kind(self) -> KrigingKind:
        """Simple with a known mean, ordinary with an unknown constant, universal with other unknown columns."""
        return kriging_kind(self.observations, is_mean_known=self.whitened.design.shape[1] == 0)

    def predict(
        self,
        sites: ArrayLike,
        *,
        covariates: ArrayLike | None = None,
        target: Target = "observation",
        error_variances: ArrayLike | None = None,
        variance: bool = True,
        certified: bool = False,
        batch_bytes: int | None = None,
    ) -> Prediction:
        """Predict at new sites.

        Parameters
        ----------
        sites : (m, d) array
            Coordinates, in the unit and dimension of the observations.
        covariates : (m, q) array, optional
            Covariates of the mean at the sites, in the order of those of the observations; needed where these have some.
        target : {"observation", "field"}
            A new observation, which has a nugget of its own (the default, right for checks against held-out values), or the
            smooth field.
        error_variances : (m,) array, optional
            Known variances of their errors, which come on top of the nugget. Without them a new observation
            has the nugget alone, even where the observations have known errors: those say nothing of another measurement.
        variance : bool
            False for means alone, which take ``2 n`` flops per site and no solve: the variances of the result are NaN.
        certified : bool
            Refine the means, and give the most that means and variances are off from those of exact arithmetic, whatever the
            precision of the factor (``half_width``). The covariance function and its values are taken as they are.
        batch_bytes : int, optional
            Memory for the covariances of one batch of sites; when not given 256 MiB, or on a GPU its memory budget.

        Returns
        -------
        Prediction
            Mean and variance at each site, in the order of ``sites``.

        Raises
        ------
        ValueError
            Dimension or covariates do not match the observations, there is no such target, or there are error variances that are
            none or of a field, which has no errors.

        Notes
        -----
        Cost ``n**2`` flops per site, and one reading of the factor per batch. Half-widths take once what
        :meth:`ooc_chol.CholeskyFactor.certify` takes, and at each site the covariances a second time: :doc:`/certified`.
        """
        check_target(target)
        places, design = self.check(sites, covariates)
        errors = new_errors(error_variances, len(places), target)
        beside = self.model.nugget + errors if target == "observation" else 0.0
        known = self._certified_mean if certified else None
        refined = known if known is not None and known.is_certified else None
        if variance:
            sums = self._sums(places, batch_bytes)
            mean, of_field, lagrange = self._predicted(places, design, sums)
            variances = of_field + beside
        else:
            sums, lagrange, variances = None, None, np.full(len(places), np.nan)
        if sums is None or refined is not None:
            mean = self._mean(places, design, refined)
        if known is None:
            return Prediction(mean, variances, target, lagrange)
        at = AtSites(design, self._own(places), sums, self.model.variance, beside, variances)
        return Prediction(mean, variances, target, lagrange, half_widths(known, at))

    def predict_batches(
        self,
        batches: Iterable[ArrayLike],
        *,
        covariates: Iterable[ArrayLike] | None = None,
        target: Target = "observation",
        certified: bool = False,
        batch_bytes: int | None = None,
    ) -> Iterator[Prediction]:
        """Predict some sites after others, so that neither sites nor predictions need to be in memory together.

        Parameters
        ----------
        batches : iterable of (m_k, d) arrays
            Sites, such as ``Grid.blocks()`` gives. For means over blocks there is :func:`predict_block_means`.
        covariates : iterable of (m_k, q) arrays, optional
            The covariates of the mean there, batch by batch.
        target : {"observation", "field"}
            New observations, whose variance includes the nugget, or the smooth field underneath.
        certified : bool
            Give half-widths, too, as :meth:`predict` does.
        batch_bytes : int, optional
            Memory for one batch of sites, as for :meth:`predict`.

        Returns
        -------
        iterator of Prediction
            One per batch, in their order.

        Raises
        ------
        ValueError
            As :meth:`predict`; or ``covariates`` has not as many batches. Faults of one are found when it is its turn.

        Notes
        -----
        Cost ``n**2`` flops per site. The factor is read once for each, so batches far smaller than
        ``batch_bytes / (8 n)`` sites read it more often.
        """
        check_target(target)
        pairs = zip(batches, itertools.repeat(None)) if covariates is None else zip(batches, covariates, strict=True)
        options: dict[str, Any] = {"target": target, "certified": certified, "batch_bytes": batch_bytes}
        return (self.predict(sites, covariates=columns, **options) for sites, columns in pairs)

    def predict_mean(self, sites: ArrayLike, *, covariates: ArrayLike | None = None) -> NDArray[np.float64]:
        """The kriging mean alone: two solves with the factor in all, and none per site.

        Parameters
        ----------
        sites : (m, d) array
            Coordinates.
        covariates : (m, q) array, optional
            Covariates of the mean at the sites, in the order of those of the observations; needed where these have some.

        Returns
        -------
        (m,) array
            The mean of :meth:`predict`, to rounding.

        Raises
        ------
        ValueError
            Dimension or covariates do not match the observations.

        Notes
        -----
        ``x0' b + c' inv(S) (z - X b)``, where ``inv(S) (z - X b)`` is solved for once and kept; ``2 n`` flops per site beside
        its ``n`` covariances, which are made piece by piece and never stored.
        """
        return self._mean(*self.check(sites, covariates))

    def _mean(
        self, places: NDArray[np.float64], design: NDArray[np.float64], refined: CertifiedMean | None = None
    ) -> NDArray[np.float64]:
        """The mean at sites that were checked."""
        unit, n = self.model.with_values(variance=1.0, nugget=0.0), self.observations.n
        joint = covariance_source(unit, np.concatenate([self.observations.coordinates, places]))
        plan = self.factor.plan
        is_here = isinstance(plan, oc.Plan)  # that of a cluster has no devices of this process
        products: NDArray[np.float64] = oc.symm(
            joint,
            self.dual if refined is None else refined.dual,
            rows=range(n, n + len(places)),
            columns=range(n),
            devices=plan.devices if is_here else None,
            memory_budget=plan.budgets[0].budget_bytes if is_here else None,
        )
        if refined is not None:
            return refined.shift + (design @ refined.coefficients + products)
        return design @ self.coefficients + products

    def weights(
        self, sites: ArrayLike, *, covariates: ArrayLike | None = None, batch_bytes: int = BATCH_BYTES
    ) -> NDArray[np.float64]:
        """The weights of the observations in each prediction: ``mean = weights.T @ z``.

        Parameters
        ----------
        sites : (m, d) array
            Coordinates.
        covariates : (m, q) array, optional
            Covariates of the mean at the sites, in the order of those of the observations; needed where these have some.
        batch_bytes : int
            Memory for one batch of sites.

        Returns
        -------
        (n, m) array
            Rows in the caller's order. With a known mean ``b`` they multiply ``z - X b``; else ``X.T @ weights`` is the design
            at the sites, which makes the prediction unbiased.

        Raises
        ------
        ValueError
            Dimension or covariates do not match the observations.

        Notes
        -----
        ``inv(S) (c + X inv(X' inv(S) X) (x0 - X' inv(S) c))``: ``3 n**2`` flops per site.
        """
        places, design = self.check(sites, covariates)
        weights = np.empty((self.observations.n, len(places)))
        for batch in self.batches(len(places), batch_bytes):
            weights[self.order, batch] = self.factor.solve(self.with_multipliers(places[batch], design[batch]))
        return weights

    def with_multipliers(self, sites: NDArray[np.float64], design: NDArray[np.float64]) -> NDArray[np.float64]:
        """Right-hand sides of kriging weights, for ``inv(R)``: correlations with the sites, and the multipliers of unbiasedness.

        Parameters
        ----------
        sites : (m, d) array
            Coordinates, checked.
        design : (m, p) array
            Columns of the mean there.

        Returns
        -------
        (n, m) array
            ``r + X inv(X' inv(R) X) (x0 - X' inv(R) r)``, rows in the order of the factor.
        """
        white, right = self.whitened, self.correlations(sites)
        k = white.design.shape[1]
        if k:
            gap = design - self.factor.half_solve(right).T @ white.design
            right += self.observations.design @ solve_triangular(white.root, solve_triangular(white.root, gap.T, trans="T"))
        return right

    @cached_property
    def dual(self) -> NDArray[np.float64]:
        """``inv(R) (z - X b)``, rows in the order of the factor, shape ``(n,)``; solved for once."""
        return self.factor.half_solve(self.whitened.residual, transposed=True)

    def correlations(self, sites: NDArray[np.float64]) -> NDArray[np.float64]:
        """Correlations of the smooth field at the observations with that at ``sites``, shape ``(n, m)``."""
        return cross_covariance(self.model.with_values(variance=1.0, nugget=0.0), self.observations.coordinates, sites)

    def batches(self, m: int, batch_bytes: int = BATCH_BYTES) -> Iterator[slice]:
        """Slices of ``m`` sites whose cross-covariances, with the copies that a half-solve needs, take ``batch_bytes``."""
        # a batch holds n entries per site three times: cross-covariance, right-hand side and result of the half-solve
        step = max(1, batch_bytes // (3 * 8 * self.observations.n))
        return (slice(start, start + step) for start in range(0, m, step))

    @cached_property
    def _certified_mean(self) -> CertifiedMean:
        """Certified bounds of the mean and of :attr:`dual`; computed once, for a matrix that does not change."""
        return certified_mean(self.factor, self.observations, self.model, self.whitened)

    def _own(self, sites: NDArray[np.float64]) -> NDArray[np.float64]:
        """Variances of the field without data, over that of the model."""
        return self.model.site_variances(sites) / self.model.variance

    def _sums(self, sites: NDArray[np.float64], batch_bytes: int | None) -> tb.HalfSolveSums:
        """Squares of ``v = inv(L) r(sites)``, and products with the data and the mean's columns."""
        white, n = self.whitened, self.observations.n
        # R with a border: correlations of the field at the observations with that at the sites, without nugget
        places = np.concatenate([self.observations.coordinates, sites])
        joint = covariance_source(self.model.with_values(variance=1.0, nugget=0.0), places)
        return self.factor.half_solve_sums(
            joint,
            range(n, n + len(sites)),
            np.column_stack([white.residual, white.design]),
            width=None if batch_bytes is None else max(1, batch_bytes // (8 * n)),
        )

    def _predicted(
        self, sites: NDArray[np.float64], design: NDArray[np.float64], sums: tb.HalfSolveSums
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of the smooth field, and the Lagrange terms."""
        white = self.whitened
        # x0' b + r' inv(R) (z - X b)
        mean = design @ white.coefficients + sums.products[:, 0]
        # x0 - X' inv(R) r for the estimated columns, and its length in the metric of inv(X' inv(R) X)
        unknown = design[:, : white.design.shape[1]]
        trend = solve_triangular(white.root, (unknown - sums.products[:, 1:]).T, trans="T")
        # x0' inv(X' inv(R) X) (x0 - X' inv(R) r)
        lagrange = np.einsum("ij,ij->j", solve_triangular(white.root, unknown.T, trans="T"), trend)
        unexplained = np.maximum(self._own(sites) - sums.squares, 0.0)
        variance = self.model.variance * (unexplained + np.einsum("ij,ij->j", trend, trend))
        return mean, variance, self.model.variance * lagrange

    def check(self, sites: ArrayLike, covariates: ArrayLike | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Match new sites with the observations.

        Parameters
        ----------
        sites : (m, d) array
            Coordinates of the new sites, as those of the observations.
        covariates : (m, q) array or None
            Covariates of the mean at the sites.

        Returns
        -------
        sites : (m, d) array
            The coordinates in float64.
        design : (m, p) array
            Columns of the mean at the sites.

        Raises
        ------
        ValueError
            Dimension or covariates do not match the observations.
        """
        return match_sites(self.observations, sites, covariates)


def match_sites(
    observations: Observations, sites: ArrayLike, covariates: ArrayLike | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Check new sites against the observations: :meth:`Kriging.check` without a factorization."""
    places = as_sites(sites)
    d = observations.coordinates.shape[1]
    if places.shape[1] != d:
        raise ValueError(f"sites have {places.shape[1]} coordinates, but the observations have {d}")
    design = design_matrix(len(places), covariates, observations.mean)
    p = observations.design.shape[1]
    if design.shape[1] != p:
        raise ValueError(
            f"the mean has {p} columns ({', '.join(observations.mean_columns)}), but the sites give {design.shape[1]}: "
            "pass the same covariates as for the observations"
        )
    return places, design


def kriging_kind(observations: Observations, *, is_mean_known: bool) -> KrigingKind:
    """The kind of kriging of some data: their mean has no columns or known coefficients, an intercept alone, or others."""
    if is_mean_known or not observations.mean_columns:
        return "simple"
    return "ordinary" if observations.mean_columns == ("intercept",) else "universal"


def _whiten_known(factor: oc.CholeskyFactor, observations: Observations, coefficients: ArrayLike) -> Whitened:
    """The data about a known mean, multiplied by ``inv(L)``."""
    known = known_coefficients(observations, coefficients)
    residual = factor.half_solve(observations.values - observations.design @ known)
    return Whitened(np.empty((observations.n, 0)), residual, known, np.empty((0, 0)))


def known_coefficients(observations: Observations, coefficients: ArrayLike) -> NDArray[np.float64]:
    """Check known coefficients of the mean."""
    known, names = tb.plain_array("coefficients", coefficients, np.float64, copy=True), observations.mean_columns
    if known.shape != (len(names),):
        raise ValueError(
            f"coefficients have shape {known.shape}, but the mean has {len(names)} columns ({', '.join(names) or 'none'}): "
            "a known mean needs one each"
        )
    if not np.isfinite(known).all():
        raise ValueError(f"coefficients hold a NaN or an infinity: {known.tolist()}")
    return known
