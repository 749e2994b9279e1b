"""Right-hand sides that are Dask arrays: their chunks are cut into pieces, and solutions into such chunks, on the workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.blocks import BlockGrid
from ooc_chol.cluster.waiting import gathered
from ooc_chol.files.inputs import plain_array
from ooc_chol.formats import PrecisionFormat
from ooc_chol.kernels.interfaces.whole import check_right_hand_side, nonfinite_error


@final
class LazyColumns:
    """A Dask array of right-hand sides, cut by block rows and into groups of columns; computed on the workers, once.

    Raises ``TypeError`` or ``ValueError``: as for right-hand sides in memory: another shape, no numbers, or a NaN or an infinity
    among them.
    """

    def __init__(self, client: Any, blocks: BlockGrid, fmt: PrecisionFormat, b: Any, *, most: int) -> None:
        check_right_hand_side(b.dtype, b.shape, blocks.tiles.n, fmt)
        self._client, self._blocks, self._fmt, self._b = client, blocks, fmt, b
        self.m = 1 if b.ndim == 1 else int(b.shape[1])
        self.groups = -(-self.m // most)
        cuts = [self.m * number // max(1, self.groups) for number in range(self.groups + 1)]
        self._columns = [range(start, stop) for start, stop in itertools.pairwise(cuts)]
        self._rows = [blocks.rows(row) for row in range(blocks.n_blocks)]

    def pieces(self, *, flips: bool) -> Iterator[Sequence[Any]]:
        """Futures of the pieces of one group of columns after the other; of their conjugates where ``flips``.

        All of ``b`` is computed and looked through before the first.
        """
        matrix = self._b[:, None] if self._b.ndim == 1 else self._b
        cut = matrix.rechunk((tuple(map(len, self._rows)), tuple(map(len, self._columns))))
        delayed = cut.to_delayed()
        chunks = self._client.compute(delayed.ravel().tolist(), sync=False)
        made = [self._client.submit(_piece, chunk, self._fmt.dtype, flips, pure=False) for chunk in chunks]
        del chunks
        self._check_finite(made, delayed.shape)
        for group in range(self.groups):
            yield made[group :: self.groups]

    def _check_finite(self, made: Sequence[Any], shape: tuple[int, int]) -> None:
        """Raise what a right-hand side in memory raises for its first NaN or infinity."""
        found = gathered(self._client, [self._client.submit(_nonfinite, piece, pure=False) for piece in made])
        places = [
            ((rows.start + place[0], columns.start + place[1]), value)
            for (rows, columns), (place, value) in zip(
                ((rows, columns) for rows in self._rows for columns in self._columns), found, strict=True
            )
            if place is not None
        ]
        if places:
            place, value = min(places, key=lambda each: each[0])
            in_type = "" if np.can_cast(self._b.dtype, self._fmt.dtype) else f" in {self._fmt.dtype}"
            raise nonfinite_error(place[: self._b.ndim], f"{value}{in_type}")

    def array(self, found: Sequence[Sequence[Any]], spans: Sequence[range], *, flips: bool) -> Any:
        """A Dask array of solutions, with the chunks of ``b``, from the pieces of each group, which are so many block rows each.

        It holds the futures of the pieces: what it is made of stays in the workers' memory as long as it is there.
        """
        arrays, delayed = import_module("dask.array"), import_module("dask").delayed
        heights = [sum(len(self._rows[row]) for row in span) for span in spans]

        def chunk(piece: Any, shape: tuple[int, int]) -> Any:
            return arrays.from_delayed(delayed(piece), shape, meta=np.empty((0, 0), self._fmt.dtype))

        columns = [
            arrays.concatenate([chunk(piece, (height, len(part))) for piece, height in zip(pieces, heights, strict=True)])
            for pieces, part in zip(found, self._columns, strict=True)
        ]
        x = arrays.concatenate(columns, axis=1)
        x = x.conj() if flips else x
        return (x[:, 0] if self._b.ndim == 1 else x).rechunk(self._b.chunks)


def _piece(chunk: Any, dtype: np.dtype[Any], flips: bool) -> NDArray[Any]:
    """A chunk as a piece."""
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        piece = plain_array("b", chunk, gaps_as_nan=True).astype(dtype, order="C", copy=False)
    return piece.conj() if flips else piece


def _nonfinite(piece: NDArray[Any]) -> tuple[tuple[int, int] | None, Any]:
    """Place of the first entry that is not finite, and its value in the type of L."""
    finite = np.isfinite(piece)
    if finite.all():
        return None, None
    row, column = np.unravel_index(int(np.argmin(finite)), piece.shape)
    return (int(row), int(column)), piece[row, column]
