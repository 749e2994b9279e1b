"""What an estimator needs to be one in scikit-learn's sense, without scikit-learn: parameters, input checks, its errors."""

from __future__ import annotations

import importlib
import inspect
import warnings
from abc import ABC
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

import ooc_chol as oc
from ooc_chol.apps.geostat.errors import MissingExtraError


class NotFittedError(oc.OocCholError, ValueError, AttributeError):
    """An estimator is asked for what only ``fit`` can give; raised where scikit-learn, which has its own, is not installed."""


class AbstractEstimator(ABC):  # noqa: B024 -- what is shared by estimators is concrete; only __init__ differs
    """Parameters by name, as scikit-learn's ``BaseEstimator`` has them; the arguments of ``__init__`` are the parameters.

    Notes
    -----
    scikit-learn is not imported here (it takes half a second) and need not be installed. Where it is, its ``clone``,
    ``Pipeline``, ``GridSearchCV`` and ``cross_val_score`` take these estimators as they are: they ask for the methods below.
    """

    @classmethod
    def _parameter_names(cls) -> list[str]:
        """Arguments of ``__init__``, sorted."""
        return sorted(name for name in inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the estimator."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; nothing is checked before ``fit``."""
        names = self._parameter_names()
        for name, value in parameters.items():
            if name not in names:
                raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {names!r}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: parameter.default for name, parameter in inspect.signature(type(self)).parameters.items()}
        changed = [f"{n}={v!r}" for n, v in self.get_params().items() if repr(v) != repr(defaults[n])]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may expect: a regressor of one target, of dense finite numbers."""
        try:
            from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags
        except ImportError as error:
            raise MissingExtraError(
                "tags are objects of scikit-learn 1.6 or later, which is not installed: pip install 'ooc_chol[sklearn]'"
            ) from error
        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(),
        )


def not_fitted(estimator: AbstractEstimator) -> Exception:
    """The error for an estimator that was not fitted: scikit-learn's own class where it is installed."""
    kind: type[Exception] = _from_sklearn("NotFittedError", NotFittedError)
    return kind(f"This {type(estimator).__name__} instance is not fitted yet: call fit(X, y) first.")


def column_names(table: object) -> NDArray[np.object_] | None:
    """Names of the columns of a data frame."""
    columns = getattr(table, "columns", None)
    if columns is None or callable(columns):
        return None
    names = list(columns)
    strings = [isinstance(name, str) for name in names]
    if any(strings) and not all(strings):
        raise TypeError("Feature names are only supported if all input features have string names, but some have not")
    return np.array(names, dtype=object) if names and all(strings) else None


def checked_features(X: ArrayLike, expected: int | None = None, *, name: str) -> NDArray[np.float64]:
    """A table of finite real numbers."""
    if issparse(X):
        raise TypeError(f"Sparse data was passed for X, but {name} needs dense data: use X.toarray()")
    array = _real(X, "X")
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data either using array.reshape(-1, 1) if it has "
            "a single feature or array.reshape(1, -1) if it contains a single sample."
        )
    n, d = array.shape
    if n == 0:
        raise ValueError(f"Found array with 0 sample(s) (shape={array.shape}) while a minimum of 1 is required by {name}.")
    if d == 0:
        raise ValueError(f"Found array with 0 feature(s) (shape={array.shape}) while a minimum of 1 is required by {name}.")
    if expected is not None and d != expected:
        raise ValueError(f"X has {d} features, but {name} is expecting {expected} features as input.")
    return _finite(array, "X")


def checked_target(y: ArrayLike | None, n: int, *, name: str) -> NDArray[np.float64]:
    """One finite real number per row of ``X``."""
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    array = _real(y, "y")
    if array.ndim == 2 and array.shape[1] == 1:
        kind: type[Warning] = _from_sklearn("DataConversionWarning", UserWarning)
        text = "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,)."
        warnings.warn(text, kind, stacklevel=3)
        array = array.ravel()
    if array.ndim != 1:
        raise ValueError(f"y should be a 1d array, got an array of shape {array.shape} instead: {name} fits one target")
    if len(array) != n:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {n} in X, {len(array)} in y")
    return _finite(array, "y")


def check_names(fitted: NDArray[np.object_] | None, given: NDArray[np.object_] | None, *, name: str) -> None:
    """Compare the column names of a data frame with those that were fitted."""
    if fitted is None and given is not None:
        warnings.warn(f"X has feature names, but {name} was fitted without feature names", UserWarning, stacklevel=3)
    elif fitted is not None and given is None:
        warnings.warn(f"X does not have valid feature names, but {name} was fitted with feature names", UserWarning, stacklevel=3)
    elif fitted is not None and given is not None and list(fitted) != list(given):
        message = "The feature names should match those that were passed during fit.\n"
        for text, odd in (
            ("unseen at fit time", set(given) - set(fitted)),
            ("seen at fit time, yet now missing", set(fitted) - set(given)),
        ):
            message += f"Feature names {text}:\n" + "".join(f"- {column}\n" for column in sorted(odd)) if odd else ""
        if set(fitted) == set(given):
            message += "Feature names must be in the same order as they were in fit.\n"
        raise ValueError(message)


def _real(data: ArrayLike, what: str) -> NDArray[np.float64]:
    """A float64 copy of real numbers."""
    array = np.asarray(data)
    if np.iscomplexobj(array):
        raise ValueError(f"Complex data not supported\n{what} has dtype {array.dtype}; pass real numbers")
    return np.array(array, dtype=np.float64)


def _finite(array: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    """The array itself, or ``ValueError``."""
    if np.isnan(array).any():
        raise ValueError(f"Input {what} contains NaN. Drop these rows, or fill them in, before fit and predict.")
    if not np.isfinite(array).all():
        raise ValueError(f"Input {what} contains infinity or a value too large for dtype('float64').")
    return array


def _from_sklearn(name: str, otherwise: Any) -> Any:
    """A class of ``sklearn.exceptions``, or another one where scikit-learn is not installed."""
    try:
        return getattr(importlib.import_module("sklearn.exceptions"), name)
    except ImportError:
        return otherwise
