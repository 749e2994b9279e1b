"""Small sparse matrices, and files of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


def matrix(seed: int = 0, shape: tuple[int, int] = (30, 20), count: int = 200) -> sp.coo_array:
    """Entries in any order, some repeated, some zero."""
    random = np.random.default_rng(seed)
    values = random.integers(-2, 6, count) / 4
    return sp.coo_array((values, (random.integers(0, shape[0], count), random.integers(0, shape[1], count))), shape=shape)


def graph(seed: int = 0, n: int = 25, weighted: bool = True) -> sp.csr_array:
    """A symmetric matrix of whole numbers without loops; its last vertex has no neighbours."""
    random = np.random.default_rng(seed)
    upper = sp.triu(
        sp.coo_array((random.integers(1, 9, 60), (random.integers(0, n - 1, 60), random.integers(0, n - 1, 60))), shape=(n, n)), 1
    )
    upper = sp.csr_array(upper)
    if not weighted:
        upper.data[:] = 1
    return sp.csr_array(upper + upper.T)


def folder(path: Path, a: Any, **replaced: Any) -> Path:
    """A folder of the vectors of a matrix; None leaves one out."""
    csr = sp.csr_array(a)
    vectors = {"indptr": csr.indptr, "indices": csr.indices, "data": csr.data, **replaced}
    path.mkdir(exist_ok=True)
    for name, vector in vectors.items():
        if vector is not None:
            np.save(path / f"{name}.npy", np.asarray(vector))
    (path / "shape.json").write_text(json.dumps(csr.shape))
    return path


def metis(a: sp.csr_array, fmt: str = "", leading: Callable[[int], str] = lambda vertex: "") -> str:
    """The text of a graph, a comment in its middle."""
    lines = [f"{a.shape[0]} {a.nnz // 2} {fmt}".strip()]
    for vertex in range(a.shape[0]):
        part = slice(a.indptr[vertex], a.indptr[vertex + 1])
        pairs = zip(a.indices[part] + 1, a.data[part].astype(int), strict=True)
        edges_ = " ".join(
            f"{col} {weight}" if fmt.split(" ")[0].endswith("1") else f"{col}" for col, weight in reversed(list(pairs))
        )
        lines.append(f"{leading(vertex)} {edges_}".strip())
        if vertex == 7:
            lines.append("% a comment")
    return "\n".join(lines) + "\n"
