"""Edges of random graphs on the host: NumPy's whole numbers, a block of edges at a time so that they stay in the cache."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ooc_chol.tasks.random_graphs import DRAW_BITS, DRAWS, GOLDEN, MULTIPLIERS, ROUNDS, SHIFTS, WORDS, EdgeDraw

#: Edges of a block. NumPy takes the interpreter lock for each of the hundred calls that a block needs: smaller ones would keep
#: 16 threads waiting for it, larger ones leave the cache.
_BLOCK = 1 << 16
#: Words that make a byte of each end.
_WORDS_OF_A_BYTE = 8 // DRAWS

Vertices = NDArray[np.uint32]


def edges(draw: EdgeDraw, numbers: range) -> Vertices:
    """Both ends of the edges of these numbers, loops and duplicates among them: a (2, n) array."""
    return np.concatenate([np.empty((2, 0), np.uint32), *(_block(draw, block) for block in _blocks(numbers))], axis=1)


def relabelled(draw: EdgeDraw, vertices: Vertices) -> Vertices:
    """Relabel vertices in place, by a bijection of the numbers below ``draw.n_vertices``: odd multiples, sums and shifts."""
    mask, fold, part = np.uint32(draw.n_vertices - 1), np.uint32(draw.fold), np.empty_like(vertices)
    for multiplier, offset in zip(ROUNDS, draw.offsets, strict=True):
        vertices *= np.uint32(multiplier)
        vertices += np.uint32(offset)
        vertices &= mask
        np.right_shift(vertices, fold, out=part)
        vertices ^= part
    return vertices


def read_ends(draw: EdgeDraw, numbers: range) -> Vertices:
    """The vertices that a product reads for these edges, loops left out: the columns of their entries."""
    found = [np.empty(0, np.uint32)]
    for block in _blocks(numbers):
        u, v = _block(draw, block)
        proper = u != v
        found += [v[proper]] if draw.directed else [u[proper], v[proper]]
    return np.concatenate(found)


def entries(
    draw: EdgeDraw, numbers: range, rows: range, numbering: NDArray[np.int32] | None = None
) -> tuple[NDArray[np.uint64], int]:
    """Entries in ``rows`` of these edges as unsorted keys ``row * 2**scale + column``, and the loops left out of all rows.

    Where there is a ``numbering``, vertex i is ``numbering[i]``.
    """
    keys = np.empty(len(numbers) * (1 if draw.directed else 2), np.uint64)
    stop = loops = 0
    for block in _blocks(numbers):
        u, v = _numbered(_block(draw, block), numbering)
        proper = u != v
        loops += len(block) - int(np.count_nonzero(proper))
        for row, column in [(u, v)] if draw.directed else [(u, v), (v, u)]:
            stop = _append_keys(draw, (row, column, proper), rows, keys, stop)
    return keys[:stop], loops


def counts(draw: EdgeDraw, numbers: range, numbering: NDArray[np.int32] | None = None) -> NDArray[np.int64]:
    """How many entries of these edges lie in each bucket of rows, duplicates among them."""
    found = np.zeros(1 << draw.bucket_bits, np.int64)
    shift = np.uint32(draw.scale - draw.bucket_bits)
    for block in _blocks(numbers):
        u, v = _numbered(_block(draw, block), numbering)
        proper = u != v
        for row in (u,) if draw.directed else (u, v):
            found += np.bincount(row[proper] >> shift, minlength=len(found))
    return found


def _numbered(ends: Vertices, numbering: NDArray[np.int32] | None) -> Vertices:
    """Both ends in other numbers."""
    return ends if numbering is None else np.take(numbering.view(np.uint32), ends)


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


def _blocks(numbers: range) -> list[range]:
    return [numbers[start : start + _BLOCK] for start in range(0, len(numbers), _BLOCK)]


def _block(draw: EdgeDraw, block: range) -> Vertices:
    """Both ends of the edges of one block."""
    if draw.thresholds is not None:
        return relabelled(draw, _quadrants(draw, draw.thresholds, block))
    halves = np.stack([(words := _words(draw, block, 0, 1)) >> np.uint64(32), words & np.uint64(0xFFFFFFFF)])
    halves >>= np.uint64(32 - draw.scale)
    return halves.astype(np.uint32)


def _quadrants(draw: EdgeDraw, thresholds: tuple[int, int, int], block: range) -> Vertices:
    """Both ends of R-MAT's edges before relabelling, made a byte at a time."""
    a, ab, abc = thresholds
    ends = np.zeros((2, len(block), 4), np.uint8)
    is_set = np.empty((2, len(block) * _WORDS_OF_A_BYTE * DRAWS), np.bool_)
    is_low, is_right = is_set  # the quadrants (1, 0) and (1, 1); (0, 1) and (1, 1)
    for byte in range(-(-draw.scale // 8)):
        words = _words(draw, block, byte * _WORDS_OF_A_BYTE, _WORDS_OF_A_BYTE)
        draws = words.astype("<u8", copy=False).view(f"<u{DRAW_BITS // 8}")
        np.greater_equal(draws, ab, out=is_low)
        np.greater_equal(draws, a, out=is_right)
        is_right ^= is_low
        is_right ^= draws >= abc
        ends[:, :, byte] = np.packbits(is_set, bitorder="little").reshape(2, -1)
    found: Vertices = ends.view("<u4")[:, :, 0].astype(np.uint32, copy=False)
    found &= np.uint32(draw.n_vertices - 1)
    return found


def _words(draw: EdgeDraw, block: range, word: int, n_words: int) -> NDArray[np.uint64]:
    """Words ``word`` to ``word + n_words`` of the edges of a block, those of an edge beside each other."""
    begin = (draw.key + (WORDS * block.start + word + 1) * GOLDEN) % (1 << 64)
    x: NDArray[np.uint64] = np.add(_steps(n_words)[: len(block) * n_words], np.uint64(begin))
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
    """Offsets of the words of a block's edges from the first one."""
    numbers = np.arange(_BLOCK, dtype=np.uint64)[:, None] * np.uint64(WORDS) + np.arange(n_words, dtype=np.uint64)
    steps: NDArray[np.uint64] = np.multiply(numbers, np.uint64(GOLDEN)).reshape(-1)
    return steps
