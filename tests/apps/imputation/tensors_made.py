"""A graph of places, and a tensor on it, small enough for a fraction of a second."""

from __future__ import annotations

from functools import cache

import numpy as np

import ooc_chol as oc
from ooc_chol.apps.imputation import neighbour_graph

N, SIZE = 80, 12


@cache
def graph():
    """80 places, weighted edges to neighbours."""
    return neighbour_graph(np.random.default_rng(1).random((N, 2)), 6)


@cache
def fourier():
    """Its transform."""
    return oc.GraphFourier(graph())


def tensor(rank=1, **options):
    """Slices of 12 x 12."""
    return oc.testing.low_rank_tensor(fourier(), SIZE, SIZE, rank, **options)


def edges(path):
    """Write the graph as a list of edges with weights."""
    upper = graph().tocoo()
    once = upper.row < upper.col
    np.savetxt(path, np.column_stack([upper.row[once], upper.col[once], upper.data[once]]), fmt=["%d", "%d", "%.17g"])
