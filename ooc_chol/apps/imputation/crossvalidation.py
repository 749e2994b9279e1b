"""Held-out error by cross-validation over slices: how well the model does on these data, and where lambda should end."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.imputation.graphs import read_graph
from ooc_chol.apps.imputation.scores import neighbour_means, observed_mask, power_of, slice_squares


@final
@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation:
    """Errors at slices that were held out, for each value of lambda.

    Parameters
    ----------
    lambdas : (L,) array of float64
        Values of lambda as shares of s_1, descending: those that every fold came to.
    slice_errors : (N, L) array of float64
        Relative error of each slice, ``||estimate - X|| / ||X||`` over what of it is observed, when it was held out; NaN of
        slices of which nothing is.
    errors : (L,) array of float64
        Relative error of all of them together.
    folds : (N,) array of int
        Fold in which a slice was held out; -1 where nothing of it is observed.
    neighbours : float
        Relative error of means of neighbours, the plainest estimate.
    """

    lambdas: NDArray[np.float64]
    slice_errors: NDArray[np.float64]
    errors: NDArray[np.float64]
    folds: NDArray[np.intp]
    neighbours: float

    @property
    def best(self) -> int:
        """Values of lambda after which the error is smallest: ``n_lambdas`` for data with noise."""
        return int(np.argmin(self.errors)) + 1

    @property
    def error(self) -> float:
        """Relative error after that many values."""
        return float(self.errors[self.best - 1])

    def to_dict(self) -> dict[str, object]:
        """The figures as plain data.

        Returns
        -------
        dict
            Numbers and lists that JSON can hold, without those of single slices.
        """
        return {
            "folds": int(self.folds.max()) + 1,
            "lambdas": self.lambdas.tolist(),
            "errors": self.errors.tolist(),
            "best": self.best,
            "error": self.error,
            "neighbours": self.neighbours,
        }

    def __repr__(self) -> str:
        facts: dict[str, object] = {"folds": int(self.folds.max()) + 1, "error": self.error, "best": self.best}
        return tb.one_line(self, facts | {"neighbours": self.neighbours})

    def __str__(self) -> str:
        held = int(np.count_nonzero(self.folds >= 0))
        lines = [f"{held} slices held out in {int(self.folds.max()) + 1} folds: relative error {self.error:.4g}"]
        lines.append(f"  best after {self.best} of {len(self.errors)} values of lambda")
        lines.append(f"  means of neighbours have {self.neighbours:.4g}")
        lines.append(f"  {'lambda / s_1':>14} {'error':>10}")
        lines += [f"  {lam:>14.4g} {error:>10.4g}" for lam, error in zip(self.lambdas, self.errors, strict=True)]
        return "\n".join(lines)


def cross_validate(
    X: Any,
    graph: Any,
    mask: NDArray[np.bool_] | None = None,
    *,
    folds: int = 5,
    seed: int = 0,
    fourier: oc.GraphFourier | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> CrossValidation:
    """Hold slices out, impute them from the others, and look how far the estimates are off.

    Parameters
    ----------
    X : (N, m, n) array
        The tensor, as of :func:`ooc_chol.impute`.
    graph : GraphFourier, sparse matrix, array, or path
        As of :func:`ooc_chol.impute`; its eigenvectors are computed once.
    mask : (N,) or (N, m, n) bool array, optional
        True where observed; by default where X is not NaN.
    folds : int
        Slices of which something is observed are dealt into so many parts at random, each of which is held out once.
    seed : int
        Seed of the dealing.
    fourier : GraphFourier, optional
        The transform beside the graph, where it is there already, or is another one than all eigenvectors of the normalized
        Laplacian; the graph then only serves the means of neighbours.
    progress : callable, optional
        ``progress(done, folds)`` after each fold.
    **options
        Arguments of :func:`ooc_chol.impute` that say how: ``n_lambdas``, ``decay``, ``svt``, ``precision`` and so on.

    Returns
    -------
    CrossValidation
        Errors by lambda, and those of means of neighbours beside.

    Raises
    ------
    ValueError
        There are fewer slices with something observed than folds, or an argument makes no sense.
    TypeError
        An option is one that cannot be the same for all folds, such as a checkpoint.

    Notes
    -----
    A fold costs one imputation, and after each value of lambda a copy of the tensor. A share of ``1 / folds`` is observed less
    than in the whole, so that errors are rather too large.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> from ooc_chol.apps.imputation import neighbour_graph
    >>> graph = neighbour_graph([[k % 8, k // 8] for k in range(64)], 4)
    >>> found = cross_validate(
    ...     oc.testing.low_rank_tensor(graph, 12, 12, 1), graph
    ... )
    >>> found.error < 0.01 < found.neighbours
    True
    """
    if unfit := {"checkpoint", "callback", "start", "work_folder"} & set(options):
        raise TypeError(f"{sorted(unfit)[0]} is of one imputation, and cross-validation makes one for each fold: leave it out")
    tensor, seen = _given(X, mask)
    of_slice = dealt(seen, folds, seed)
    weights = _weights(graph, len(tensor))
    transform = fourier
    if transform is None:
        is_given = isinstance(graph, oc.GraphFourier)
        transform = graph if is_given else oc.GraphFourier(weights, devices=options.get("devices"))
    lambdas: NDArray[np.float64] = np.empty(0)
    squares, plain = np.full((len(tensor), 0), np.nan), np.zeros(len(tensor))
    size, power = np.zeros(len(tensor)), power_of([tensor], seen)
    for fold in range(folds):
        held = of_slice == fold
        kept = seen & ~held.reshape(-1, *(1,) * (seen.ndim - 1))
        scored = held if seen.ndim == 1 else seen & held[:, None, None]
        away, report = _errors(tensor, transform, kept, scored, power, options)
        if not away and np.ptp(tensor[seen]) == 0:
            raise ValueError(f"all that is observed is {tensor[seen].flat[0]:g}, so that there is nothing to tell slices by")
        if not away:
            raise ValueError(f"a fold came to no value of lambda: {report.stopped}; take fewer slices out at a time (more folds)")
        lambdas = np.array(_shares_of(report))
        columns = len(away) if fold == 0 else min(len(away), squares.shape[1])
        squares = np.full((len(tensor), columns), np.nan) if fold == 0 else squares[:, :columns]
        squares[held] = np.stack(away[:columns], axis=1)[held]
        mean_away, _ = slice_squares(neighbour_means(tensor, kept, weights), tensor, scored, power)
        plain[held] = mean_away[held]
        size[held] = slice_squares(tensor, tensor, scored, power)[1][held]
        if progress is not None:
            progress(fold + 1, folds)
    total = float(size.sum())
    if not total:
        raise ValueError("all that is observed is zero, so that there are no relative errors")
    with np.errstate(divide="ignore", invalid="ignore"):
        by_slice = np.sqrt(squares / size[:, None])
    errors = np.sqrt(np.nansum(squares, axis=0) / total)
    means = float(np.sqrt(plain.sum() / total))
    return CrossValidation(lambdas[: squares.shape[1]], by_slice, errors, of_slice, means)


def held_out_error(
    X: Any, fourier: oc.GraphFourier, mask: NDArray[np.bool_] | None = None, *, share: float = 0.1, seed: int = 0, **options: Any
) -> tb.HeldOut | None:
    """Hold a part of what is observed out of one fit, and look how far its estimates are off.

    Parameters
    ----------
    X : (N, m, n) array
        The tensor, as of :func:`ooc_chol.impute`.
    fourier : GraphFourier
        The transform of the graph.
    mask : (N,) or (N, m, n) bool array, optional
        True where observed; by default where X is not NaN.
    share : float
        Share of what is observed, chosen at random: slices where slices are missing, entries where parts of slices are, or both.
    seed : int
        Seed of the choice.
    **options
        Arguments of :func:`ooc_chol.impute` that say how.

    Returns
    -------
    HeldOut or None
        Errors by lambda, of a constant, and of means of neighbours. None where there are none to tell: nothing is missing, only
        one slice is observed, what is held out is zero, or the fit came to no value of lambda.

    Raises
    ------
    ValueError, TypeError
        As :func:`ooc_chol.impute`; and where ``share`` is no share.

    Notes
    -----
    It costs one imputation, and after each value of lambda a copy of the tensor in memory. A fit that knows the rest errs less.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> from ooc_chol.apps.imputation import neighbour_graph
    >>> fourier = oc.GraphFourier(
    ...     neighbour_graph([[k % 8, k // 8] for k in range(64)], 4)
    ... )
    >>> x = oc.testing.low_rank_tensor(fourier, 12, 12, 1)
    >>> found = held_out_error(
    ...     x, fourier, oc.testing.random_mask(x.shape, 0.9)
    ... )
    >>> found.is_better, found.error < 0.05 < found.neighbours
    (True, True)
    """
    if not 0 < tb.real_number(share, "share") < 1:
        raise ValueError(f"share is {share:g}; give a share of what is observed between 0 and 1, such as 0.1")
    tensor, seen = _given(X, mask)
    kept = _without_some(seen, share, np.random.default_rng(seed))
    scored = seen & ~kept
    if not kept.any() or not scored.any():
        return None
    power = power_of([tensor], seen)
    size = float(slice_squares(tensor, tensor, scored, power)[1].sum())
    if not size:
        return None
    with warnings.catch_warnings():  # of what is not observed once a part is held out
        warnings.simplefilter("ignore", oc.errors.ImputationWarning)
        away, report = _errors(tensor, fourier, kept, scored, power, options)
    if not away:
        return None
    plain = np.broadcast_to(np.float64(report.center), tensor.shape), neighbour_means(tensor, kept, fourier.weights)
    sums = [float(each.sum()) for each in (*away, *(slice_squares(each, tensor, scored, power)[0] for each in plain))]
    *errors, constant, neighbours = (float(np.sqrt(each / size)) for each in sums)
    entries, all_seen = (int(each.sum()) * (tensor[0].size if each.ndim == 1 else 1) for each in (scored, seen))
    return tb.HeldOut(entries, entries / all_seen, _shares_of(report), tuple(errors), constant, neighbours)


def told_with(imputed: oc.Imputed, held: tb.HeldOut | None) -> oc.Imputed:
    """The same with held-out errors in its report, and a warning where something plainer errs no more."""
    if held is not None and not held.is_better:
        plainest = min(held.constant, held.neighbours)
        name = "means of neighbours" if plainest == held.neighbours else "zeros" if plainest == 1 else "the mean alone"
        known = f"at what was held out the model has an error of {held.error:.3g}, and {name} {plainest:.3g}"
        advice = 'try normalized="auto", or n_lambdas="auto" where there is noise, or take the plainer'
        text = f"{known}: the model is not one of these data; {advice}"
        warnings.warn(text, oc.errors.ImputationWarning, stacklevel=3)
    return replace(imputed, report=replace(imputed.report, held_out=held))


def _given(X: Any, mask: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The tensor, and what of it is observed."""
    tensor = tb.plain_array("X", X, gaps_as_nan=True)
    seen = observed_mask(X) if mask is None else tb.plain_array("mask", mask)
    if seen.shape not in (tensor.shape, tensor.shape[:1]) or seen.dtype != np.bool_:
        raise ValueError(f"mask holds {seen.dtype} of shape {seen.shape}; give bool, {tensor.shape[:1]} or {tensor.shape}")
    return tensor, seen


def _without_some(seen: NDArray[np.bool_], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A mask without a share of what is observed: of slices, of entries, or of both, as they are missing."""
    kept, by_slice = seen.copy(), seen.reshape(len(seen), -1)
    begun, whole = np.flatnonzero(by_slice.any(axis=1)), np.asarray(by_slice.all(axis=1))
    if 1 < len(begun) < len(seen):
        kept[rng.permutation(begun)[: max(1, round(share * len(begun)))]] = False
    if not whole[begun].all():
        # One slice at a time: random numbers of all would be more than the tensor.
        kept &= np.stack([rng.random(kept.shape[1:]) >= share for _ in kept])
    return kept


def _shares_of(report: tb.ImputeReport) -> tuple[float, ...]:
    """Values of lambda as shares of s_1."""
    return tuple(row.lam / report.largest for row in report.history)


def dealt(seen: NDArray[np.bool_], folds: int, seed: int) -> NDArray[np.intp]:
    """The fold of each slice of which something is observed, -1 of others."""
    begun = np.flatnonzero(seen.reshape(len(seen), -1).any(axis=1))
    if isinstance(folds, bool) or not hasattr(folds, "__index__"):
        raise TypeError(f"folds is {folds!r:.40}; give a whole number")
    if not 2 <= folds <= len(begun):
        raise ValueError(f"folds is {folds}, but something is observed of {len(begun)} slices: give 2 up to that number")
    of_slice = np.full(len(seen), -1)
    of_slice[np.random.default_rng(seed).permutation(begun)] = np.arange(len(begun)) % folds
    return of_slice


def _weights(graph: Any, n: int) -> csr_array:
    """The adjacency matrix."""
    if isinstance(graph, oc.GraphFourier):
        return graph.weights
    if isinstance(graph, str | os.PathLike):
        return read_graph(graph, n)
    if issparse(graph) or isinstance(graph, np.ndarray):
        return csr_array(graph.astype(np.float64))
    with oc.block_csr(graph) as packed:
        return packed.tocsr()


def _errors(
    tensor: NDArray[Any],
    fourier: oc.GraphFourier,
    kept: NDArray[np.bool_],
    scored: NDArray[np.bool_],
    power: int,
    options: dict[str, Any],
) -> tuple[list[NDArray[np.float64]], tb.ImputeReport]:
    """Squares of errors over ``2**power`` by slice after each value of lambda, and the report."""
    away: list[NDArray[np.float64]] = []

    def score(row: tb.LambdaRow, estimate: Callable[[], NDArray[Any]]) -> None:
        away.append(slice_squares(estimate(), tensor, scored, power)[0])

    report = oc.impute(tensor, kept, fourier, callback=score, **options).report
    return away, report
