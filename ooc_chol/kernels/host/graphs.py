"""Edges of random graphs on the host: NumPy's whole numbers, a block of edges at a time so that they stay in the cache."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ooc_chol.tasks.random_graphs import DRAW_BITS, DRAWS, GOLDEN, MULTIPLIERS, ROUNDS, SHIFTS, WORDS, EdgeDraw

#: Edges of a block.
_BLOCK = 1 << 15
#: Words that make a byte of each end.
_WORDS_OF_A_BYTE = 8 // DRAWS

Vertices = NDArray[np.uint32]


def edges(draw: EdgeDraw, numbers: range) -> tuple[Vertices, Vertices]:
    """Both ends of the edges of these numbers, loops and duplicates among them."""
    u, v = np.empty(len(numbers), np.uint32), np.empty(len(numbers), np.uint32)
    for start in range(0, len(numbers), _BLOCK):
        part = slice(start, min(start + _BLOCK, len(numbers)))
        _draw_block(draw, numbers.start + start, u[part], v[part])
    return u, v


def relabelled(draw: EdgeDraw, vertices: Vertices) -> Vertices:
    """Relabel vertices in place, by a bijection of the numbers below ``draw.n_vertices``: odd multiples, sums and shifts."""
    mask, fold = np.uint32(draw.n_vertices - 1), np.uint32(draw.fold)
    for multiplier, offset in zip(ROUNDS, draw.offsets, strict=True):
        vertices *= np.uint32(multiplier)
        vertices += np.uint32(offset)
        vertices &= mask
        vertices ^= vertices >> fold
    return vertices


def entries(draw: EdgeDraw, numbers: range, rows: range) -> tuple[NDArray[np.uint64], int]:
    """Entries in ``rows`` of these edges as unsorted keys ``row * 2**scale + column``, and the loops left out of all rows."""
    keys = np.empty(len(numbers) * (1 if draw.directed else 2), np.uint64)
    stop = loops = 0
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        u, v = np.empty(len(block), np.uint32), np.empty(len(block), np.uint32)
        _draw_block(draw, block.start, u, v)
        proper = u != v
        loops += len(block) - int(np.count_nonzero(proper))
        for row, column in [(u, v)] if draw.directed else [(u, v), (v, u)]:
            stop = _append_keys(draw, (row, column, proper), rows, keys, stop)
    return keys[:stop], loops


def counts(draw: EdgeDraw, numbers: range) -> NDArray[np.int64]:
    """How many entries of these edges lie in each bucket of rows, duplicates among them."""
    found = np.zeros(1 << draw.bucket_bits, np.int64)
    shift = np.uint32(draw.scale - draw.bucket_bits)
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        u, v = np.empty(len(block), np.uint32), np.empty(len(block), np.uint32)
        _draw_block(draw, block.start, u, v)
        proper = u != v
        for row in (u,) if draw.directed else (u, v):
            found += np.bincount(row[proper] >> shift, minlength=len(found))
    return found


def _append_keys(
    draw: EdgeDraw, ends: tuple[Vertices, Vertices, NDArray[np.bool_]], rows: range, keys: NDArray[np.uint64], stop: int
) -> int:
    """Write the keys of entries in ``rows`` behind the first ``stop``; returns how many there are then."""
    row, column, wanted = ends
    if len(rows) < draw.n_vertices:
        wanted = wanted & (row - np.uint32(rows.start) < np.uint32(len(rows)))
    row, column = row[wanted], column[wanted]
    made = keys[stop : stop + len(row)]
    np.left_shift(row, np.uint64(draw.scale), out=made, dtype=np.uint64)
    made |= column
    return stop + len(row)


def _draw_block(draw: EdgeDraw, first: int, u: Vertices, v: Vertices) -> None:
    """Draw the edges from number ``first`` on."""
    if draw.thresholds is None:
        words = _words(draw, first, len(u), 0, 1)
        shift = np.uint64(32 - draw.scale)
        np.right_shift(words >> np.uint64(32), shift, out=u, casting="same_kind")
        np.right_shift(words & np.uint64(0xFFFFFFFF), shift, out=v, casting="same_kind")
        return
    _draw_quadrants(draw, draw.thresholds, first, u, v)
    relabelled(draw, u)
    relabelled(draw, v)


def _draw_quadrants(draw: EdgeDraw, thresholds: tuple[int, int, int], first: int, u: Vertices, v: Vertices) -> None:
    """Draw R-MAT's quadrants, a byte of each end at a time."""
    a, ab, abc = thresholds
    u_bytes, v_bytes = (np.zeros((len(u), 4), np.uint8) for _ in range(2))
    for byte in range(-(-draw.scale // 8)):
        words = _words(draw, first, len(u), byte * _WORDS_OF_A_BYTE, _WORDS_OF_A_BYTE)
        draws = words.astype("<u8", copy=False).view(f"<u{DRAW_BITS // 8}")
        is_low = draws >= ab  # the quadrants (1, 0) and (1, 1)
        is_right = (draws >= a) ^ is_low ^ (draws >= abc)
        u_bytes[:, byte] = np.packbits(is_low, bitorder="little")
        v_bytes[:, byte] = np.packbits(is_right, bitorder="little")
    mask = np.uint32(draw.n_vertices - 1)
    np.bitwise_and(u_bytes.view("<u4")[:, 0], mask, out=u)
    np.bitwise_and(v_bytes.view("<u4")[:, 0], mask, out=v)


def _words(draw: EdgeDraw, first: int, count: int, word: int, n_words: int) -> NDArray[np.uint64]:
    """Words ``word`` to ``word + n_words`` of so many edges, those of an edge beside each other."""
    begin = (draw.key + (WORDS * first + word + 1) * GOLDEN) % (1 << 64)
    x: NDArray[np.uint64] = _steps(n_words)[: count * n_words] + np.uint64(begin)
    part = np.empty_like(x)
    for shift, multiplier in zip(SHIFTS[:2], MULTIPLIERS, strict=True):
        np.right_shift(x, np.uint64(shift), out=part)
        x ^= part
        x *= np.uint64(multiplier)
    np.right_shift(x, np.uint64(SHIFTS[2]), out=part)
    x ^= part
    return x


@cache
def _steps(n_words: int) -> NDArray[np.uint64]:
    """What the words of the edges of a block add to the first one's."""
    numbers = WORDS * np.arange(_BLOCK, dtype=np.uint64)[:, None] + np.arange(n_words, dtype=np.uint64)
    steps: NDArray[np.uint64] = (numbers * np.uint64(GOLDEN)).reshape(-1)
    return steps
