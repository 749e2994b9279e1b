"""Which chunks of a matrix in Zarr or HDF5 were ever written: an entry of any other is the fill value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ChunkGrid(NamedTuple):
    """The chunks of an array of two axes."""

    shape: tuple[int, int]  #: Rows and columns of a chunk
    is_there: NDArray[np.bool_]  #: Of each chunk, row by column
    named: Callable[[int, int], str]  #: A chunk in the words of a message


def hdf5_chunks(a: Any) -> ChunkGrid | None:
    """Chunks of a data set of h5py; None of anything else, and of one that is not stored in chunks."""
    chunks: Any = getattr(a, "chunks", None)
    data: Any = getattr(a, "id", None)
    if not isinstance(chunks, tuple) or len(chunks) != 2 or not hasattr(data, "get_num_chunks"):
        return None
    counts = [-(-n // width) for n, width in zip(a.shape, chunks, strict=True)]
    is_there = np.zeros(counts, bool)
    if data.get_num_chunks() == is_there.size:
        is_there[...] = True
    elif hasattr(data, "chunk_iter"):

        def note(found: Any) -> None:
            is_there[found.chunk_offset[0] // chunks[0], found.chunk_offset[1] // chunks[1]] = True

        data.chunk_iter(note)
    else:
        return None
    return ChunkGrid(chunks, is_there, lambda i, j: f"the chunk at [{i * chunks[0]}, {j * chunks[1]}] of {a.name}")
