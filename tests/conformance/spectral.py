"""Front doors of cuts of graphs and images."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array, kron

from ooc_chol.apps import spectral
from tests.conformance import Door


@cache
def _grid(rows: int, columns: int) -> csr_array:
    """A grid of vertices."""
    one, other = (diags_array([1.0, 1.0], offsets=[-1, 1], shape=(n, n)) for n in (rows, columns))
    return csr_array(kron(one, eye_array(columns)) + kron(eye_array(rows), other))


@cache
def _image(rows: int) -> np.ndarray:
    """A bright square on a dark ground that is not quite even."""
    image = np.random.default_rng(rows).integers(0, 8, (rows, 30)).astype(float)
    image[6:16, 8:20] += 120.0
    return image


#: Why the doors lack some common options.
LACKS = {
    "store": "labels are a number for each vertex: write_partition writes them",
    "packed": "each graph that is cut is packed in memory for its eigenvectors, and let go again",
    "replace": "nothing is written",
    "checkpoint": "a call is many runs of the eigensolver, each of another graph",
}
_SHARED: dict[str, Any] = {
    "planned": {"memory_budget": "1 GiB"},
    "unit": "pass",
    "counts": "pass",
    "lacks": LACKS,
}


def _labels(found: Any) -> list[np.ndarray]:
    return [found.labels, np.array([split.ncut for split in found.tree])]


def _parts(found: Any) -> list[np.ndarray]:
    return [found.labels, found.eigenvalues, found.residuals, np.array([found.cut])]


DOORS: list[Door] = [
    Door(
        "bisect",
        spectral.bisect,
        spectral.plan_bisect,
        arguments=lambda: (_grid(29, 23),),
        others=lambda: (_grid(28, 23),),
        numbers=_parts,
        options={"preconditioner": "diagonal", "search": 10},
        **_SHARED,
    ),
    Door(
        "partition",
        spectral.partition,
        spectral.plan_partition,
        arguments=lambda: (_grid(29, 23), 3),
        others=lambda: (_grid(28, 23), 3),
        numbers=_parts,
        options={"preconditioner": "diagonal", "search": 10},
        **_SHARED,
    ),
    Door(
        "normalized_cut",
        spectral.normalized_cut,
        spectral.plan_normalized_cut,
        arguments=lambda: (_image(26),),
        others=lambda: (_image(24),),
        numbers=_labels,
        options={"radius": 2, "sigma_i": 40.0, "max_ncut": 0.05, "preconditioner": "diagonal"},
        first="image_or_affinity",
        **_SHARED,
    ),
]
