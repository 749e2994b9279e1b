"""Cross-validation without refitting: leave-one-out and folds of any kind from one factorization of all the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.observations import Observations, check_is_observations
from ooc_chol.apps.geostat.data.ordering import inverse_permutation
from ooc_chol.apps.geostat.factorization import FactorProgress, FactorSettings
from ooc_chol.apps.geostat.kriging.checks import HeldOutScores, score
from ooc_chol.apps.geostat.kriging.folds import FoldKind, Folds, as_folds
from ooc_chol.apps.geostat.kriging.kriged import BATCH_BYTES, Kriging
from ooc_chol.apps.geostat.kriging.predicted import Prediction
from ooc_chol.apps.geostat.kriging.prediction import kriging
from ooc_chol.apps.geostat.kriging.transformed import BackTransformed

#: Share of a column of the mean outside a fold (of its squared length) below which the others do not determine it.
_LOST = 1e-13


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Every observation predicted from those outside its fold.

    Parameters
    ----------
    values : (n,) array
        The observations, in the caller's order.
    prediction : Prediction or BackTransformed
        Predictions of them, the mean estimated without the fold too; the covariance function is kept.
    folds : (n,) array
        Fold of each observation, 0 to ``n_folds - 1``.
    """

    values: NDArray[np.float64]
    prediction: Prediction | BackTransformed
    folds: NDArray[np.intp]

    __repr__ = tb.brief_repr

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return int(self.folds.max()) + 1

    @property
    def residuals(self) -> NDArray[np.float64]:
        """Value minus prediction, shape ``(n,)``."""
        return self.values - self.prediction.mean

    @property
    def standardized(self) -> NDArray[np.float64]:
        """Residuals in standard errors, shape ``(n,)``: of mean square one, but for chance, when the model is right.

        On the original scale of transformed values they are those of the fitted scale, on which errors are Gaussian.
        """
        if isinstance(self.prediction, BackTransformed):
            fitted = self.prediction.gaussian
            return (self.prediction.transform.threshold(self.values) - fitted.mean) / fitted.standard_error
        return self.residuals / self.prediction.standard_error

    def scores(self, level: float = 0.95) -> HeldOutScores:
        """Scores of all predictions; the predictor to beat is the mean of all values.

        Parameters
        ----------
        level : float
            Level of the intervals.

        Returns
        -------
        HeldOutScores
            Errors, coverage of the intervals and proper scores, over all held-out values.

        Raises
        ------
        ValueError
            ``level`` is not between 0 and 1.
        """
        return score(self.prediction, self.values, self.values, level=level)


@tb.documented(like=kriging)
def leave_one_out(
    observations: Observations,
    model: AbstractCovariance,
    *,
    coefficients: ArrayLike | None = None,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
) -> CrossValidation:
    """Predict every observation from all others, with one factorization.

    Parameters
    ----------
    model : AbstractCovariance
        The covariance function, kept as it is.
    coefficients : (p,) array, optional
        Known coefficients of the mean; without them they are estimated from the others each time.

    Returns
    -------
    CrossValidation
        Prediction, variance and fold of each observation, in the order of ``observations``.

    Raises
    ------
    ValueError
        An observation alone determines a coefficient of the mean.
    NotPositiveDefiniteError
        The covariance matrix is not positive definite in floating point.

    Notes
    -----
    The residual is ``(Q z)_i / Q_ii`` and its variance ``1 / Q_ii``, where ``Q = inv(S) - inv(S) X inv(X' inv(S) X) X' inv(S)``
    (Dubrule 1983): the same as ``n`` krigings of ``n - 1`` observations. The diagonal of ``inv(S)`` takes ``n**3 / 3`` flops, as
    many as the factorization.
    """
    check_is_observations(observations)
    with kriging(observations, model, coefficients=coefficients, settings=settings, progress=progress) as kriged:
        alone = np.arange(observations.n)
        _check_determined(kriged, list(alone[:, np.newaxis]))
        diagonal = kriged.factor.inverse_diagonal() - np.sum(_trend(kriged) ** 2, axis=0)
        return _validation(kriged, kriged.dual / diagonal, 1.0 / diagonal, kriged.order)


@tb.documented(like=leave_one_out)
def cross_validate(
    observations: Observations,
    model: AbstractCovariance,
    *,
    folds: int | ArrayLike | Folds = 10,
    how: FoldKind = "random",
    seed: int = 0,
    coefficients: ArrayLike | None = None,
    settings: FactorSettings | None = None,
    progress: FactorProgress | None = None,
) -> CrossValidation:
    """Predict every fold from all observations outside it, with one factorization.

    Parameters
    ----------
    folds : int, (n,) array or Folds
        How many folds to make by :func:`fold_labels`, or a whole number for each observation: equal numbers are one fold. Or
        what :func:`folds` made, which may leave out what is near, too, or match the distances at which sites are predicted.
    how : {"random", "tiles", "kmeans"}
        How a number of folds is made; see :func:`fold_labels`.
    seed : int
        Seed of random folds and of k-means.
    coefficients : (p,) array, optional
        Known coefficients of the mean; without them they are estimated from outside each fold.

    Returns
    -------
    CrossValidation
        Prediction, variance and fold of each observation, in the order of ``observations``.

    Raises
    ------
    ValueError
        There are fewer than two folds or more than observations, labels are not whole numbers, or without one fold a
        coefficient of the mean cannot be estimated.
    NotPositiveDefiniteError
        The covariance matrix is not positive definite in floating point.

    Notes
    -----
    With ``Q`` of :func:`leave_one_out` and the rows ``I`` of a fold, the residuals are ``inv(Q_II) (Q z)_I`` with covariance
    ``inv(Q_II)``: the same as kriging from the others. ``2 n**3`` flops in all, six times the factorization, and memory for the
    block of the largest fold. With a buffer ``I`` is the fold with what is left out beside it, and rows are solved for as often
    as groups of folds (of 96 MiB) leave them out.
    """
    check_is_observations(observations)
    chosen = as_folds(observations, folds, how, seed)
    with kriging(observations, model, coefficients=coefficients, settings=settings, progress=progress) as kriged:
        labels, left_out = chosen.labels[kriged.order], _rows_left_out(chosen, kriged.order)
        _check_determined(kriged, left_out)
        # along the matrix, so that folds that share a solve leave out the same rows
        sequence = np.argsort(np.unique(labels, return_index=True)[1])
        residual, variance = np.empty(observations.n), np.empty(observations.n)
        trend = _trend(kriged)
        blocks = _inverse_blocks(kriged.factor, [left_out[fold] for fold in sequence])
        for fold, block in zip(sequence, blocks, strict=True):
            rows = left_out[fold]
            # Q_II = inv(R)_II - T_I' T_I of what is left out, of which the fold is all or a part
            root = cho_factor(block - trend[:, rows].T @ trend[:, rows], lower=True)
            own = np.flatnonzero(labels[rows] == fold)
            residual[rows[own]] = cho_solve(root, kriged.dual[rows])[own]
            variance[rows[own]] = np.diagonal(cho_solve(root, np.eye(len(rows))[:, own])[own])
        return _validation(kriged, residual, variance, labels)


def _rows_left_out(chosen: Folds, order: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Rows of the matrix that each fold leaves out, ascending."""
    back = inverse_permutation(order)
    return [np.sort(back[out]) for out in chosen.left_out()]


def _check_determined(kriged: Kriging, left_out: list[NDArray[np.intp]]) -> None:
    """Raise ``ValueError`` when the mean cannot be estimated without what one of the folds leaves out."""
    design = kriged.observations.design[:, : kriged.whitened.design.shape[1]]
    if not design.shape[1]:
        return
    # the columns of q are orthonormal, so those of q without the fold are independent unless the fold alone has length one
    q = np.linalg.qr(design)[0]
    for fold, rows in enumerate(left_out):
        if np.linalg.norm(q[rows], ord=2) ** 2 > 1.0 - _LOST:
            raise ValueError(
                f"without fold {fold} ({len(rows)} observations, with number {kriged.order[rows[0]]}, counted from zero) the "
                f"coefficients of the mean ({', '.join(kriged.observations.mean_columns)}) cannot be estimated; make folds "
                "smaller, a buffer shorter, or leave a column out"
            )


def _trend(kriged: Kriging) -> NDArray[np.float64]:
    """``T`` with ``T' T = inv(R) X inv(X' inv(R) X) X' inv(R)``, shape ``(p, n)``; no rows when the mean is known."""
    white = kriged.whitened
    solved = kriged.factor.half_solve(white.design, transposed=True)
    return np.asarray(solve_triangular(white.root, solved.T, trans="T"))


def _inverse_blocks(factor: oc.CholeskyFactor, left_out: list[NDArray[np.intp]]) -> Iterator[NDArray[np.float64]]:
    """The block of ``inv(R)`` of the rows that each fold leaves out; small ones share a solve, large ones take several."""
    step = max(1, BATCH_BYTES // (2 * 8 * factor.n))
    for rows, group in _groups(left_out, step):
        block = np.empty((len(rows), len(rows)))
        for start in range(0, len(rows), step):
            columns = rows[start : start + step]
            block[:, start : start + len(columns)] = factor.solve(_unit_vectors(factor.n, columns))[rows]
        for out in group:
            own = np.searchsorted(rows, out)
            part = block[np.ix_(own, own)]
            yield 0.5 * (part + part.T)


def _groups(left_out: list[NDArray[np.intp]], step: int) -> Iterator[tuple[NDArray[np.intp], list[NDArray[np.intp]]]]:
    """Consecutive folds that leave out at most ``step`` rows together, or one that leaves out more, with these rows."""
    rows: NDArray[np.intp] = np.empty(0, dtype=np.intp)
    group: list[NDArray[np.intp]] = []
    for out in left_out:
        both = np.union1d(rows, out)
        if group and len(both) > step:
            yield rows, group
            both, group = out, []
        rows = both
        group.append(out)
    yield rows, group


def _unit_vectors(n: int, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    """The columns of the identity matrix."""
    vectors = np.zeros((n, len(columns)))
    vectors[columns, np.arange(len(columns))] = 1.0
    return vectors


def _validation(
    kriged: Kriging, residual: NDArray[np.float64], variance: NDArray[np.float64], folds: NDArray[np.intp]
) -> CrossValidation:
    """Results in the caller's order, variances in squared units of the values."""
    back = inverse_permutation(kriged.order)
    values = kriged.observations.values[back]
    prediction = Prediction(values - residual[back], kriged.model.variance * variance[back], "observation")
    return CrossValidation(values, prediction, folds[back])
