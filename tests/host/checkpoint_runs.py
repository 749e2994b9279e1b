"""Runs of every engine that can be ended at some tile of A, and what they are compared by."""

from __future__ import annotations

import threading

import numpy as np

import ooc_chol as oc
from tests.host.golden import cauchy

N, NB = 300, 32
A = cauchy(N, 0.05, 2, 1e-3)
PLAIN = {"tile_size": NB, "devices": "host:0", "memory_budget": "200 KiB"}
RESIDUE = {**PLAIN, "fp64": "residue", "memory_budget": "4 MiB"}
#: Every engine, in its own way of going on.
ENGINES = {
    "native": (A, PLAIN),
    "residue": (A, RESIDUE),
    "mixed": (A, {**PLAIN, "precision_threshold": 1e-4}),
    "mixed residue": (A, {**RESIDUE, "precision_threshold": 1e-4, "moduli": 8}),
    "complex": (A * np.outer(phases := np.exp(0.3j * np.arange(N)), phases.conj()), PLAIN),
    "float32": (A, {**PLAIN, "dtype": "float32", "memory_budget": "100 KiB"}),
}


class StopError(Exception):
    """What ends a run in these tests."""


def bits(factor: oc.CholeskyFactor) -> bytes:
    """L, closed."""
    with factor:
        return np.asarray(factor).tobytes()


def stop_at(a, count: int, action=None) -> oc.FunctionSource:
    """A as a tile function that at one call raises, or does something else."""
    calls = []

    def tile(rows, cols, out, stream):
        out[...] = a[rows.start : rows.stop, cols.start : cols.stop]
        calls.append(threading.current_thread())
        if len(calls) == count:
            if action is None:
                raise StopError
            action()

    return oc.from_function(len(a), tile, dtype=a.dtype.name)
