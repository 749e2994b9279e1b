"""Front doors of this system."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import ooc_chol as oc
from tests.conformance import Door


@cache
def _problem(n: int) -> tuple[Any, ...]:
    """A tensor over a ring, its mask, and the ring's transform."""
    ring = np.roll(np.eye(n), 1, axis=1) + np.roll(np.eye(n), -1, axis=1)
    fourier = oc.GraphFourier(ring, devices="host:0")
    tensor = oc.testing.low_rank_tensor(fourier, 70, 64, 2, seed=n)
    return tensor, oc.testing.random_mask(tensor.shape, 0.8, by="entry", seed=n), fourier


DOORS: list[Door] = [
    Door(
        "impute",
        oc.impute,
        oc.plan_impute,
        arguments=lambda: _problem(24),
        others=lambda: _problem(20),
        numbers=lambda found: [found.tensor],
        options={"n_lambdas": 5, "max_inner": 1, "svt": "subspace"},
        planned={"memory_budget": "1.5 MB"},
        unit="step",
        first="X",
        lacks={
            "store": "what is returned is as large as X, which the caller has in memory or maps; work_folder= is for the rest",
            "packed": "no part of the tensor is sparse",
        },
    )
]
