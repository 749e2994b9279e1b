"""Matrices that cannot be factored: indefinite ones, those whose sums of residues wrap, and places for what is no number."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import DTypeLike

from tests.host.matrices import FAMILIES, upper_poisoned
from tests.inside.precision import ResidueBasis

#: Order of these matrices, tile size and tile rows.
N, NB, NT = 90, 20, 5


def good() -> np.ndarray:
    """A matrix to spoil, NaN above the diagonal."""
    return upper_poisoned(FAMILIES["exponential"](N))


def duplicated(a: np.ndarray, first: int, second: int) -> np.ndarray:
    """Row and column ``second`` become those of ``first``, beyond doubt: the pivot is -1."""
    full = np.tril(a) + np.tril(a, -1).T
    full[second, :] = full[first, :]
    full[:, second] = full[:, first]
    full[second, second] -= 1.0
    return upper_poisoned(full)


def exceeded(a: np.ndarray, row: int, col: int) -> np.ndarray:
    """An entry larger than the roots of its diagonal entries allow."""
    a[row, col] = 1.5
    return a


INDEFINITE = {
    "negative diagonal in the first tile": lambda a: a - 2.0 * np.diag(np.arange(N) == 3),
    "zero diagonal": lambda a: a * np.where(np.arange(N) == 50, 0.0, 1.0) * np.where(np.arange(N) == 50, 0.0, 1.0)[:, None],
    "minus a matrix": lambda a: -a,
    "all zero": lambda a: 0.0 * a,
    "duplicated row in one tile": lambda a: duplicated(a, 61, 65),
    "duplicated row far away": lambda a: duplicated(a, 2, 88),
    "large entry off the diagonal": lambda a: exceeded(a, 85, 7),
    "shifted": lambda a: a - 0.9 * np.eye(N),
    "wrong sign of one block": lambda a: np.where(np.minimum.outer(np.arange(N), np.arange(N)) >= 70, -a, a),
    "several at once": lambda a: a - 3.0 * np.diag(np.isin(np.arange(N), [33, 34, 71])),
}

#: Rows and columns: corners, strictly lower, diagonal, first and last of tiles, the ragged last tile row.
PLACES = [
    (0, 0),
    (19, 0),
    (19, 19),
    (20, 0),
    (20, 20),
    (39, 20),
    (45, 44),
    (59, 3),
    (80, 79),
    (80, 80),
    (89, 0),
    (89, 88),
    (89, 89),
]


def counter_example(count: int, scale: float = 1.0, dtype: DTypeLike = np.float64) -> np.ndarray:
    """An indefinite 7 x 7 matrix whose sum of residues wraps to a pivot that looks positive, though no entry is too large.

    A complex one has entries of all phases.
    """
    is_complex = np.dtype(dtype).kind == "c"
    basis = ResidueBasis(count, is_complex)
    ratio = float(Fraction(basis.product) / Fraction(4) ** basis.exponent(scale**2)) / scale**2  # P in units of A_ii: 2 to 8
    squares = min(0.6 * ratio + 0.05, 5.9)  # beyond P / 2, so that it wraps, below six entries' bounds
    a = np.eye(7, dtype=np.complex128 if is_complex else np.float64)
    a[6, :6] = np.sqrt(squares / 6) * (np.exp(1j * np.arange(1.0, 7.0)) if is_complex else 1.0)
    a[:6, 6] = a[6, :6].conj()
    return (scale**2 * a).astype(dtype)


def spread_out(a, distance: int = 16) -> np.ndarray:
    """``a`` with each row in a tile of its own, the rest of each tile from an identity."""
    n = distance * len(a)
    wide = a[0, 0] * np.eye(n)
    wide[::distance, ::distance] = a
    return upper_poisoned(wide)
