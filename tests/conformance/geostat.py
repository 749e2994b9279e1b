"""Front doors of this system."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ooc_chol.apps import geostat
from tests.conformance import Door

IN_SETTINGS = "an option of factorizations, which settings have"
MATERN = geostat.Matern(variance=1.0, range=0.3, smoothness=1.5, nugget=0.1)


def with_settings(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, with the devices of the suite in its settings; with a plan, those of the plan."""

    @wraps(call)
    def called(*arguments: Any, devices: str, settings: dict[str, Any] | None = None, **options: Any) -> Any:
        how = {"devices": devices, **(settings or {})} if options.get("plan") is None else {}
        return call(*arguments, settings=geostat.FactorSettings(**how), **options)

    called.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
    return called


def data(n: int = 60) -> geostat.Observations:
    """A smooth field at random sites."""
    sites = np.random.default_rng(n).uniform(size=(n, 2))
    return geostat.make_observations(sites, np.sin(5 * sites[:, 0]) + sites[:, 1] + np.random.default_rng(1).normal(0, 0.1, n))


def sites(n: int = 7) -> np.ndarray:
    """Where to predict."""
    return np.random.default_rng(n).uniform(size=(n, 2))


#: Tiles and budget for a run in several steps.
TILES = {"settings": {"tile_size": 16, "memory_budget": "1 MiB"}}

DOORS = [
    Door(
        "fit",
        with_settings(geostat.fit),
        with_settings(geostat.plan_fit),
        lambda: (data(),),
        lambda result: [
            np.array([result.loglik, *result.model.values.values(), result.model.variance, result.model.nugget]),
            result.coefficients,
            result.coefficient_covariance,
        ],
        lambda: (data(50),),
        options={"smoothness": 1.5, "max_evaluations": 4},
        planned=TILES,
        unit="evaluation",
        counts="evaluation",
        first="observations",
        lacks={
            "store": "factors are stored, in the store of settings; estimates are a few numbers",
            "packed": "a covariance matrix is dense, and is never written",
            **dict.fromkeys(["devices", "memory_budget", "host_budget"], IN_SETTINGS),
        },
    ),
    Door(
        "predict",
        with_settings(geostat.predict),
        with_settings(geostat.plan_predict),
        lambda: (data(), MATERN, sites()),
        lambda result: [result.mean, result.variance, result.lagrange],
        lambda: (data(50), MATERN, sites()),
        planned=TILES,
        unit="factorization",
        counts="flop",
        first="observations",
        lacks={
            "store": "predictions are arrays, which write_predictions writes",
            "packed": "a covariance matrix is dense, and is never written",
            "replace": "no file is written but the store of settings, which has a word of its own",
            "checkpoint": "one factorization and a pass",
            **dict.fromkeys(["devices", "memory_budget", "host_budget"], IN_SETTINGS),
        },
    ),
]
