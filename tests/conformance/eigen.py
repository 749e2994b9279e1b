"""Front doors of eigenpairs and singular triplets."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array, random_array
from scipy.sparse.linalg import LinearOperator

import ooc_chol as oc
from tests.conformance import Door


@cache
def symmetric(n: int) -> csr_array:
    """A random symmetric matrix with a diagonal that grows."""
    half = random_array((n, n), density=0.02, rng=np.random.default_rng(n), format="csr")
    return csr_array(half + half.T + csr_array((np.linspace(1.0, 40.0, n), (range(n), range(n)))))


@cache
def tall(n: int) -> csr_array:
    """A random matrix of more rows than columns."""
    return random_array((n, n - 150), density=0.05, rng=np.random.default_rng(n), format="csr")


def _pairs(pairs: Any) -> list[np.ndarray]:
    return [pairs.eigenvalues, pairs.eigenvectors, pairs.residuals]


NO_STORE = {"store": "pairs are returned in memory"}
NO_CHECKPOINT = {"checkpoint": "of eigsh, for block Lanczos on A alone"}


def _eigsh(
    label: str, options: dict[str, Any], planned: dict[str, Any], refuses: dict[str, str], problem: Any = symmetric
) -> Door:
    return Door(
        "eigsh",
        oc.eigsh,
        oc.plan_eigsh,
        arguments=lambda: (problem(300),),
        numbers=_pairs,
        others=lambda: (problem(280),),
        options={"k": 3, "memory_budget": "1 GiB", **options},
        planned=planned,
        unit="pass",
        counts="pass",
        lacks=NO_STORE,
        refuses=refuses,
        label=label,
    )


def _triplets(found: Any) -> list[np.ndarray]:
    return [found.u, found.s, found.vt, found.left_residuals, found.right_residuals]


def _operator(n: int) -> LinearOperator:
    """A symmetric matrix, of which only products are known."""
    a = symmetric(n)
    return LinearOperator(a.shape, matvec=a.__matmul__, matmat=a.__matmul__, dtype=a.dtype)


svds = Door(
    "svds",
    oc.svds,
    oc.plan_svds,
    arguments=lambda: (tall(400),),
    numbers=_triplets,
    others=lambda: (tall(380),),
    options={"k": 3, "memory_budget": "1 GiB"},
    planned={"ncv": 20, "block": 1},
    unit="pass",
    counts="pass",
    lacks={"store": "triplets are returned in memory"},
)

DOORS: list[Door] = [
    _eigsh("", {"which": "LA"}, {"ncv": 24, "block": 1}, {}),
    _eigsh("LOBPCG", {"which": "SA", "method": "lobpcg"}, {"block": 2}, NO_CHECKPOINT),
    _eigsh("sigma", {"sigma": 20.05, "ncv": 16}, {"block": 1}, NO_CHECKPOINT),
    _eigsh("LAPACK", {"ncv": 295}, {}, NO_CHECKPOINT | {"progress": "there is one step"}),
    _eigsh("an operator", {"which": "LA"}, {"ncv": 24, "block": 1}, {"packed": "only sparse matrices are packed"}, _operator),
    svds,
]
