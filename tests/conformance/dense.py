"""Front doors of this system."""

from __future__ import annotations

from typing import Any

import numpy as np

import ooc_chol as oc
from tests.conformance import Door


def spd(n: int = 130) -> np.ndarray:
    """A positive definite matrix whose correlations fall with distance, so that tiles far from the diagonal are small."""
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return np.exp(-0.2 * distance) + 0.1 * np.eye(n)


def _door(**facts: Any) -> Door:
    return Door(
        name="cholesky",
        call=oc.cholesky,
        plan=oc.plan,
        arguments=lambda: (spd(),),
        numbers=lambda factor: [np.asarray(factor)],
        others=lambda: (spd(117),),
        planned={"tile_size": 32},
        counts="flop",
        lacks={"packed": "A is dense, and read where it is"},
        closes=lambda factor: factor.close(),
        **facts,
    )


DOORS: list[Door] = [_door(), _door(label="in mixed precision", options={"precision_threshold": 1e-6})]
