"""Sums over columns that are made, solved for and forgotten on the workers: of ``inv(L) @ B``, and of the inverse of A."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.sweeps import ClusterSweeps
from ooc_chol.cluster.triangles import aligned
from ooc_chol.dense.factor.host_sweeps import block_sums
from ooc_chol.dense.factor.sweeps import PanelSums
from ooc_chol.memory.sources.function import FunctionSource

#: Rows of a panel of the inverse whose sums are taken at once.
_ROWS = 512


class PanelPart(NamedTuple):
    """Contribution of one block row to the sums over a panel of the inverse."""

    totals: NDArray[np.float64]  #: Of each matrix the trace and the forms, ``(k, 1 + q)``
    diagonal: NDArray[np.float64] | None  #: Of the inverse, from the block row that has the panel's columns as rows


def half_solve_sums(sweeps: ClusterSweeps, columns: range, matrix: Any, vectors: Any) -> list[Any]:
    """Sums of squares of columns of ``Y = inv(L) @ B`` beside ``Y.T @ vectors``; ``matrix``, of B, and these are futures."""
    rows = [sweeps.triangle.blocks.rows(row) for row in range(sweeps.n_blocks)]
    made = [sweeps.client.submit(_made, matrix, part, columns, pure=False) for part in rows]
    return _summed(sweeps, sweeps.forward(made), rows, vectors)


def unit_squares(sweeps: ClusterSweeps, columns: range) -> list[Any]:
    """Sums of squares of columns of ``inv(L)``, all of them in one block row."""
    first, rows = _first(sweeps, columns)
    made = [sweeps.client.submit(_unit, part, columns, pure=False) for part in rows]
    return _summed(sweeps, sweeps.forward(made, first), rows, None)


def panel_sums(sweeps: ClusterSweeps, columns: range, matrices: Any, vectors: Any) -> list[Any]:
    """Sums over a panel of the inverse, all columns in one block row: a list of :class:`PanelPart` from each of several tasks."""
    first, rows = _first(sweeps, columns)
    made = [sweeps.client.submit(_unit, part, columns, pure=False) for part in rows]
    panels = sweeps.backward(sweeps.forward(made, first), first)
    spans = [rows[group.start - first : group.stop - first] for group in sweeps.groups(first)]
    return [
        sweeps.client.submit(_panel_parts, panel, span, columns, matrices, vectors, pure=False)
        for panel, span in zip(panels, spans, strict=True)
    ]


def _first(sweeps: ClusterSweeps, columns: range) -> tuple[int, list[range]]:
    """The block row of columns of the identity, and the matrix rows of it and of all below."""
    blocks = sweeps.triangle.blocks
    first = columns.start // (blocks.height * blocks.tiles.nb)
    return first, [blocks.rows(row) for row in range(first, blocks.n_blocks)]


def _summed(sweeps: ClusterSweeps, solved: Sequence[Any], rows: Sequence[range], vectors: Any) -> list[Any]:
    parts = [sweeps.client.submit(_squares, y, part, vectors, pure=False) for y, part in zip(solved, rows, strict=True)]
    return [sweeps.client.submit(_added, parts, pure=False)]


def _made(matrix: FunctionSource, rows: range, columns: range) -> NDArray[np.float64]:
    """Rows of some columns of a matrix that a tile function makes."""
    out: NDArray[np.float64] = np.empty((len(rows), len(columns)))
    matrix.read_filled(rows, columns, out)
    return out


def _unit(rows: range, columns: range) -> NDArray[np.float64]:
    """Rows of some columns of the identity."""
    unit: NDArray[np.float64] = np.equal.outer(np.asarray(rows), np.asarray(columns)).astype(np.float64)
    return unit


def _squares(y: NDArray[np.float64], rows: range, vectors: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Sums of squares of columns, beside their products with vectors."""
    y = aligned(y)
    squares = np.einsum("ij,ij->j", y, y)[:, None]
    return squares if vectors is None else np.hstack([squares, y.T @ aligned(vectors)[rows.start : rows.stop]])


def _added(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The sum of the block rows' parts, the upper ones first."""
    total = np.array(parts[0])
    for part in parts[1:]:
        total += part
    return total


def _panel_parts(
    panel: NDArray[np.float64],
    spans: Sequence[range],
    columns: range,
    matrices: Sequence[FunctionSource],
    vectors: NDArray[np.float64],
) -> list[PanelPart]:
    """The sums of ``inv(A)[i0:i1, j0:j1]``, block row by block row; a block below the diagonal one counts twice."""
    panel, vectors = aligned(panel), aligned(vectors)
    parts, wanted = [], PanelSums(matrices, vectors.shape[1])
    for span in spans:
        totals, top = np.zeros((len(matrices), 1 + vectors.shape[1])), spans[0].start
        for rows, weight in _weighted(span, columns) if matrices else ():
            totals += weight * block_sums(panel[rows.start - top :][: len(rows)], rows, columns, sums=wanted, vectors=vectors)
        own = panel[columns.start - top :][: len(columns)].diagonal().copy() if columns.start in span else None
        parts.append(PanelPart(totals, own))
    return parts


def _weighted(span: range, columns: range) -> Iterator[tuple[range, float]]:
    """Rows from the panel's first column on, and what a sum over a symmetric matrix counts them."""
    for first, last, weight in ((columns.start, columns.stop, 1.0), (columns.stop, span.stop, 2.0)):
        stop = min(last, span.stop)
        for start in range(max(first, span.start), stop, _ROWS):
            yield range(start, min(start + _ROWS, stop)), weight
