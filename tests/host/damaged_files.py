"""Small factor files to damage, and whether one still gives its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from tests.host.stored_factors import KEY, lapack_factor, random_spd, write_factor
from tests.inside.dense import FileStore
from tests.inside.precision import FP8, FP16, FP32, FP64, PrecisionFormat
from tests.inside.tasks import TileGrid

GRID = TileGrid(20, 8)
MIXED: tuple[PrecisionFormat, ...] = (FP64, FP16, FP64, FP8, FP32, FP64)


class Factor(NamedTuple):
    """A complete file, what is in it, and its numbers."""

    path: Path
    raw: bytes
    numbers: NDArray[Any]


def made(folder: Path, formats: tuple[PrecisionFormat, ...] | None, grid: TileGrid = GRID, seed: int = 3) -> Factor:
    """A factor file, of one format or of several with a widened tile."""
    path = folder / "L.ooc"
    store = FileStore.create(path, grid, KEY, formats)
    store.widen([(2, 0)] if formats else [])
    write_factor(lapack_factor(random_spd(grid.n, seed)), store)
    store.close()
    return Factor(path, path.read_bytes(), numbers_of(path))


def numbers_of(path: Path) -> NDArray[Any]:
    """All numbers of a file, as a user gets them."""
    with oc.load(path) as factor:
        return np.asarray(factor)


def is_right(factor: Factor) -> bool:
    """Whether the file gives its numbers; False where it is an error of ours, which names the file."""
    try:
        found = numbers_of(factor.path)
    except oc.errors.TierError as error:
        assert str(factor.path) in str(error)
        return False
    assert np.array_equal(found, factor.numbers), "other numbers, and no word"
    return True
