"""Front doors of products with sparse matrices."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import random_array

import ooc_chol as oc
from tests.conformance import Door


@cache
def matrix(n: int) -> tuple[Any, ...]:
    """A matrix in memory, and vectors."""
    rng = np.random.default_rng(n)
    a = random_array((n, n - 30), density=0.1, rng=rng, format="csr")
    return a, rng.standard_normal((a.shape[1], 3))


@cache
def packed_file(n: int) -> tuple[Any, ...]:
    """The same in a packed file of several blocks, and vectors."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    a, x = matrix(n)
    path = Path(folder.name) / "A.oocsr"
    oc.block_csr(a, store=path, block_bytes="64 KiB").close()
    return path, x


LACKS = {
    "store": "the product is returned in memory",
    "checkpoint": "a call is one product, in which there is nothing to go on from",
}


def _door(label: str, problem: Any) -> Door:
    return Door(
        "multiply",
        oc.multiply,
        oc.plan_multiply,
        arguments=lambda: problem(400),
        numbers=lambda y: [np.asarray(y)],
        others=lambda: problem(350),
        options={"memory_budget": "1 GiB"},
        counts="entry",
        lacks=LACKS,
        label=label,
    )


DOORS: list[Door] = [_door("", matrix), _door("of a file", packed_file)]
