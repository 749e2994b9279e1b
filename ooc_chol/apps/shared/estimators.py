"""Base classes of estimators: scikit-learn's where it is installed, else the methods that their users call."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb

__all__ = ["BaseEstimator", "ClusterMixin", "NotFittedError", "refuse_gaps"]

try:
    from sklearn.base import BaseEstimator, ClusterMixin
    from sklearn.exceptions import NotFittedError
except ImportError:  # what its users call, without what it checks

    class NotFittedError(ValueError, AttributeError):  # type: ignore[no-redef]
        """An estimator was asked for what only a fit gives."""

    class BaseEstimator:  # type: ignore[no-redef]
        """Parameters of an estimator, as scikit-learn has them."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Parameters of the constructor by name."""
            return {name: getattr(self, name) for name in sorted(inspect.signature(type(self)).parameters)}

        def set_params(self, **params: Any) -> Self:
            """Change parameters of the constructor."""
            known = self.get_params()
            for name, value in params.items():
                if name not in known:
                    raise ValueError(f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {[*known]}.")
                setattr(self, name, value)
            return self

        def __repr__(self) -> str:
            defaults = inspect.signature(type(self)).parameters
            changed = {name: value for name, value in self.get_params().items() if value is not defaults[name].default}
            given = {name: value for name, value in changed.items() if not _is_same(value, defaults[name].default)}
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    class ClusterMixin:  # type: ignore[no-redef]
        """``fit_predict``, as scikit-learn has it."""

        def fit_predict(self, X: Any, y: None = None, **options: Any) -> NDArray[np.int32]:
            """Fit, and give the labels."""
            return np.asarray(self.fit(X, **options).labels_)  # type: ignore[attr-defined]


def refuse_gaps(**given: Any) -> None:
    """Refuse masked entries, of which scikit-learn takes what lies beneath, and dates, of which it takes a count."""
    for name, each in given.items():
        if (isinstance(each, list | tuple) or hasattr(each, "__array__")) and tb.plain_array(name, each).dtype.kind in "mM":
            tb.plain_array(name, each, np.float64)


def _is_same(value: Any, default: Any) -> bool:
    """Tell whether a parameter is what it is by default: a number, a word or None; never an array."""
    return isinstance(value, int | float | str | None) and value == default
