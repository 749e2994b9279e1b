"""Random panels of vectors, each entry a function of seed, row and column: whole numbers, the same on every device.

Entry ``(i, j)`` is made of the word ``mix(key + (8 i + j + 1) GOLDEN)`` (:mod:`ooc_chol.tasks.random_graphs`), of which the upper
24 bits u give ``u 2**-23 - 1``: a number in [-1, 1) that float32 and float64 hold exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ooc_chol.tasks.random_graphs import GOLDEN, MULTIPLIERS, SHIFTS, mix

#: Columns that rows are apart in the numbering of entries: the most that a panel has.
ROW_WORDS = 8
#: Bits of a word that become a number: those of float32's significand.
NUMBER_BITS = 24
_WORD = (1 << 64) - 1


def panel_key(seed: int) -> int:
    """Where the words of a panel begin."""
    return mix(((seed & _WORD) + GOLDEN) & _WORD)


def random_rows(seed: int, first_row: int, rows: int, columns: int) -> NDArray[np.float64]:
    """Some rows of a random panel. Returns (rows, columns): multiples of 2**-23 in [-1, 1)."""
    row = np.arange(first_row, first_row + rows, dtype=np.uint64)[:, None]
    entries = row * np.uint64(ROW_WORDS) + np.arange(1, columns + 1, dtype=np.uint64)
    words: NDArray[np.uint64] = np.multiply(entries, np.uint64(GOLDEN))
    words += np.uint64(panel_key(seed))
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(multiplier)
    words ^= words >> np.uint64(SHIFTS[-1])
    words >>= np.uint64(64 - NUMBER_BITS)
    numbers = words.astype(np.float64)
    return np.subtract(numbers * 2.0 ** (1 - NUMBER_BITS), 1.0)
