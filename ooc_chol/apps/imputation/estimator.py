"""Imputation as an estimator of scikit-learn, which works without it, too."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.imputation.fitting import fitted
from ooc_chol.apps.shared.estimators import BaseEstimator, NotFittedError

if TYPE_CHECKING:
    from sklearn.utils import Tags

#: Parameters that are options of a fit.
_PASSED_ON = (
    *("n_components", "normalized", "held_out"),
    *("n_lambdas", "decay", "max_inner", "tol", "svt", "precision", "momentum", "shrinkage", "center"),
    *("work_folder", "callback", "replace", "checkpoint", "devices", "memory_budget", "host_budget", "progress", "trace"),
)

#: What to do without arguments of other imputers.
_ELSEWHERE = {
    "missing_values": "gaps are NaN, or what the mask of fit says",
    "mask": "give it to fit",
    "start": "give it to fit",
    "first_lambda": "give it to fit",
    "max_iter": "n_lambdas values of lambda have at most max_inner steps each",
    "max_iters": "n_lambdas values of lambda have at most max_inner steps each",
    "max_rank": "ranks follow from lambda, which falls by decay n_lambdas times",
    "rank": "ranks follow from lambda, which falls by decay n_lambdas times",
    "shrinkage_value": "lambda falls by decay n_lambdas times",
    "convergence_threshold": "it is called tol",
    "n_neighbors": "neighbour_graph(places, n_neighbors) makes the graph",
    "random_state": "nothing is random but what is held out, which is the same each time: leave it out",
    "verbose": "it is called progress",
    "device": "it is called devices",
    "client": "each step needs the whole tensor beside all eigenvectors, in one process: leave it out",
}


class ConvolutionalImputer(BaseEstimator):  # type: ignore[misc]
    """Missing slices, or entries, of matrices at the vertices of a graph: :func:`ooc_chol.impute` as an estimator.

    Parameters
    ----------
    graph : GraphFourier, sparse matrix, (N, N) array, or path
        The graph, or its transform, which spares repeated fits the eigenvectors.
    n_components : int, optional
        Eigenvectors of the graph, the smoothest; by default all. Not for a GraphFourier, which has its own.
    normalized : bool or "auto"
        Take the normalized Laplacian; "auto" tries both, and takes that with the smaller held-out error. Not looked
        at for a GraphFourier.
    n_lambdas, decay, max_inner, tol
        The schedule, as of :func:`ooc_chol.impute`. ``n_lambdas="auto"`` ends after that of 20 values at which the held-out error
        is smallest, which is for data with noise.
    held_out : float, optional
        Share of what is observed that one more fit is without, so that errors at it can be told (:func:`held_out_error`); 0 for
        none. By default 0.1, and 0 with a start or a ``work_folder``.
    svt, precision, momentum, shrinkage, center
        Route of the thresholds, types of numbers, how far steps go beyond estimates, what becomes of singular values, and whether
        a mean is taken off, as of :func:`ooc_chol.impute`.
    work_folder, callback, replace, checkpoint, devices, memory_budget, host_budget, progress, trace
        Where it is computed, files, and what is told of it, as of :func:`ooc_chol.impute`.

    Attributes
    ----------
    imputed_ : Imputed
        Tensor, report and history.
    tensor_ : (N, m, n) array
        Observed values as they were, and estimates elsewhere.
    mask_ : (N,) or (N, m, n) bool array
        Mask of observed values.
    fourier_ : GraphFourier
        The transform.
    held_out_ : HeldOut or None
        Errors at what was held out, of the report too; None where there are none to tell.
    history_ : tuple of LambdaRow
        Each value of lambda: steps, mean rank, change, seconds.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> from ooc_chol.apps.imputation import ConvolutionalImputer
    >>> step = np.roll(np.eye(60), 1, axis=1)
    >>> ring = step + step.T
    >>> x = oc.testing.low_rank_tensor(ring, 20, 20, 1)
    >>> gaps = x.copy()
    >>> gaps[[5, 17, 40]] = np.nan
    >>> filled = ConvolutionalImputer(ring).fit_transform(gaps)
    >>> bool(np.linalg.norm(filled - x) < 1e-3 * np.linalg.norm(x))
    True
    """

    imputed_: oc.Imputed
    tensor_: NDArray[Any]
    mask_: NDArray[np.bool_]
    fourier_: oc.GraphFourier
    held_out_: tb.HeldOut | None
    history_: tuple[tb.LambdaRow, ...]

    @tb.answering(_ELSEWHERE)
    def __init__(
        self,
        graph: Any,
        *,
        n_components: int | None = None,
        normalized: bool | str = True,
        n_lambdas: int | str = 20,
        decay: float = 0.5,
        max_inner: int = 10,
        tol: float = 1e-8,
        svt: str = "auto",
        precision: str | None = None,
        momentum: float = 0.7,
        shrinkage: str = "garrote",
        center: bool | str = "auto",
        held_out: float | None = None,
        work_folder: str | os.PathLike[str] | None = None,
        callback: Callable[[tb.LambdaRow, Callable[[], NDArray[Any]]], object] | None = None,
        replace: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        devices: str | Sequence[str] | int | None = None,
        memory_budget: int | str | None = None,
        host_budget: int | str | None = None,
        progress: tb.Progress = None,
        trace: bool = False,
    ) -> None:
        self.graph = graph
        self.n_components = n_components
        self.normalized = normalized
        self.n_lambdas = n_lambdas
        self.decay = decay
        self.max_inner = max_inner
        self.tol = tol
        self.svt = svt
        self.precision = precision
        self.momentum = momentum
        self.shrinkage = shrinkage
        self.center = center
        self.held_out = held_out
        self.work_folder = work_folder
        self.callback = callback
        self.replace = replace
        self.checkpoint = checkpoint
        self.devices = devices
        self.memory_budget = memory_budget
        self.host_budget = host_budget
        self.progress = progress
        self.trace = trace

    def fit(self, X: Any, mask: NDArray[np.bool_] | None = None, *, start: Any = None, first_lambda: float | None = None) -> Self:
        """Estimate what is missing.

        Parameters
        ----------
        X : (N, m, n) array
            An m x n matrix at each vertex, as of :func:`ooc_chol.impute`.
        mask : (N,) or (N, m, n) bool array, optional
            True where observed; by default where X is not NaN.
        start : Imputed or (N, m, n) array, optional
            Estimates to start from, such as ``imputed_`` of an earlier fit.
        first_lambda : float, optional
            First value of lambda, which a start by an array needs.

        Returns
        -------
        ConvolutionalImputer
            Itself, with ``tensor_``.

        Raises
        ------
        ValueError
            X, the mask, the graph or a parameter makes no sense.
        TypeError
            X holds other numbers, or the mask is not bool.

        Warns
        -----
        ImputationWarning
            As :func:`ooc_chol.impute`, and where a constant or means of neighbours err no more at what was held out.
        """
        options = {name: getattr(self, name) for name in _PASSED_ON}
        found = fitted(X, mask, self.graph, start=start, first_lambda=first_lambda, **options)
        self.imputed_, self.fourier_, self.mask_, self.held_out_ = found
        self.tensor_, self.history_ = self.imputed_.tensor, self.imputed_.history
        return self

    def transform(self, X: Any = None) -> NDArray[Any]:
        """The tensor without gaps, or another one of its shape with its gaps filled from it.

        Parameters
        ----------
        X : (N, m, n) array, optional
            A tensor with NaN where it is missing; by default that of the fit.

        Returns
        -------
        (N, m, n) array
            X where it is not NaN, and what the fit has there elsewhere: float64 where one of both is.

        Raises
        ------
        NotFittedError
            There was no fit.
        ValueError
            X has another shape, or a whole number that float64 would round.
        TypeError
            X holds other numbers than float32, float64 or whole ones.
        """
        if not hasattr(self, "tensor_"):
            raise NotFittedError("this ConvolutionalImputer is not fitted: call fit(X, mask) first")
        if X is None:
            return self.tensor_
        given = tb.real_tensor("X", X)
        if given.shape != self.tensor_.shape:
            raise ValueError(f"X has shape {given.shape}, but was {self.tensor_.shape} in the fit, which knows no other vertices")
        return np.where(np.isnan(given), self.tensor_, given)

    def fit_transform(self, X: Any, mask: NDArray[np.bool_] | None = None, **options: Any) -> NDArray[Any]:
        """``fit(X, mask).transform()``.

        Parameters
        ----------
        X : (N, m, n) array
            The tensor.
        mask : (N,) or (N, m, n) bool array, optional
            True where observed; by default where X is not NaN.
        **options
            Others of :meth:`fit`.

        Returns
        -------
        (N, m, n) array
            Observed values as they were, and estimates elsewhere.

        Raises
        ------
        ValueError, TypeError
            As :meth:`fit`.
        """
        return self.fit(X, mask, **options).transform()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        return tags
