"""Pieces of parts: a part that is not connected has some, and those that other parts have room for go there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ooc_chol.apps.spectral.graphs.components import components
from ooc_chol.apps.spectral.graphs.graph import Graph

#: Rounds of moves: a piece may meet another one in the part where it goes.
_MOST_ROUNDS = 4


def gathered(graph: Graph, labels: NDArray[np.int32], least: NDArray[np.float64], most: NDArray[np.float64]) -> NDArray[np.int32]:
    """Labels after pieces went to the neighbouring part of most edges with room, the lightest first, which lessens the cut."""
    labels = labels.copy()
    sizes = graph.part_weights(labels, len(most))
    for _ in range(_MOST_ROUNDS):
        pieces, apart = _pieces(graph, labels)
        weights = np.bincount(pieces, graph.vertex_weights)
        has_moved = False
        for piece in apart[np.argsort(weights[apart], kind="stable")]:
            inside = np.flatnonzero(pieces == piece)
            own, rows = labels[inside[0]], graph.adjacency[inside]
            bonds = np.bincount(labels[rows.indices], rows.data, len(most))
            bonds[own] = 0.0
            bonds[sizes + weights[piece] > most] = 0.0
            if bonds.max() > 0 and sizes[own] - weights[piece] >= least[own]:
                part = int(np.argmax(bonds))
                labels[inside], has_moved = part, True
                sizes[own] -= weights[piece]
                sizes[part] += weights[piece]
        if not has_moved:
            break
    return labels


def text_of_pieces(graph: Graph, labels: NDArray[np.int32]) -> str | None:
    """A sentence where parts of a connected component are not connected; None where all are."""
    pieces, apart = _pieces(graph, labels) if graph.n_edges else (labels, ())
    if not len(apart):
        return None
    parts, largest = len(np.unique(labels[np.isin(pieces, apart)])), int(np.bincount(pieces)[apart].max())
    return (
        f"{parts} {'part is' if parts == 1 else 'parts are'} not connected, for the sake of balance or of a smaller cut: of the "
        f"pieces beside the main ones the largest has {largest:,} {'vertex' if largest == 1 else 'vertices'}."
    )


def _pieces(graph: Graph, labels: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """The piece of every vertex, and those that are not the heaviest of a part within a component of the graph."""
    rows = np.repeat(np.arange(graph.n), np.diff(graph.adjacency.indptr))
    is_inside = labels[rows] == labels[graph.adjacency.indices]
    inside = csr_array(
        (np.ones(int(is_inside.sum()), np.int8), (rows[is_inside], graph.adjacency.indices[is_inside])), shape=(graph.n,) * 2
    )
    _, pieces = connected_components(inside, directed=False)
    first = np.unique(pieces, return_index=True)[1]
    keys = np.stack([components(graph)[first], labels[first]])
    order = np.lexsort((-np.bincount(pieces, graph.vertex_weights), keys[1], keys[0]))
    keys = keys[:, order]
    is_apart = np.append(False, np.all(keys[:, 1:] == keys[:, :-1], axis=0))
    return pieces, order[is_apart]
