"""One matrix in every form in which it may be given: whoever factors it must give the same bits."""

from __future__ import annotations

import numpy as np

import ooc_chol as oc
from tests.host.matrices import FAMILIES, upper_poisoned

#: Order and tile size.

N, NB = 300, 32

NT = 10

ALL_TILES = NT * (NT + 1) // 2

#: Well conditioned, so that few moduli are enough.
A = upper_poisoned(FAMILIES["exponential"](N))


class Sliceable:
    """As data sets of h5py and Zarr: shape, dtype and slicing, no array."""

    def __init__(self, a):
        self.shape, self.dtype, self._a = a.shape, a.dtype, a

    def __getitem__(self, where):
        return self._a[where].copy()


def saved(folder, a):
    """The path of a file that holds ``a``."""
    np.save(folder / "a.npy", a)
    return folder / "a.npy"


def spread(a):
    """``a`` as every second row and every third column of an array."""
    wide = np.zeros((2 * N, 3 * N))
    wide[::2, ::3] = a
    return wide[::2, ::3]


def read_a(rows, cols, out, stream):
    """The tile function of A."""
    out[...] = A[rows.start : rows.stop, cols.start : cols.stop]


#: The same matrix in every form, given an empty folder.
SOURCES = {
    "C": lambda folder: A,
    "F": lambda folder: np.asfortranarray(A),
    "strided": lambda folder: spread(A),
    "negative strides": lambda folder: A[::-1, ::-1].copy()[::-1, ::-1],
    "path": lambda folder: saved(folder, A),
    "path as str, F": lambda folder: str(saved(folder, np.asfortranarray(A))),
    "memmap": lambda folder: np.load(saved(folder, A), mmap_mode="r"),
    "memmap, F": lambda folder: np.load(saved(folder, np.asfortranarray(A)), mmap_mode="r"),
    "slices": lambda folder: Sliceable(A),
    "function": lambda folder: oc.from_function(N, read_a),
}
