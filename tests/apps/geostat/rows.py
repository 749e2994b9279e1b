"""Rows for the estimator: an array of columns with its values, and parameters of which none is estimated."""

from __future__ import annotations

import numpy as np

FIXED = {"smoothness": 1.5, "range": 0.3, "variance": 2.0, "nugget": 0.05}


def example(n=80, d=2, seed=0):
    """Columns and values that follow them, with errors."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, d))
    return X, 3 + np.sin(5 * X[:, 0]) + X[:, -1] + 0.1 * rng.normal(size=n)
