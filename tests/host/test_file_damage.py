"""A factor file that is damaged is an error that says where, and never other numbers."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.damaged_files import GRID, MIXED, Factor, is_right, made
from tests.host.factor_files import header_of
from tests.inside.dense import FileStore, verify_file
from tests.inside.dense import header as header_module
from tests.inside.precision import PrecisionFormat
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.host


@pytest.fixture
def small_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let headers have a page each, so that a file has few bytes; readers find the room in the header."""
    monkeypatch.setattr(header_module, "HEADER_RESERVE", 4096)
    monkeypatch.setattr(header_module, "CHECKPOINT_ROOM", 0)


def read_spans(factor: Factor) -> list[tuple[int, int]]:
    """First byte, and the one behind the last, of everything in a file that is read: header, index and tiles."""
    fields = header_of(factor.path)
    length = struct.unpack("<Q", factor.raw[8:16])[0]
    places = GRID.n_tiles * (1 if fields["format_of_tile"] is None else 2)
    store = FileStore.open(factor.path)
    tiles = [(store.layout.offset(i, j), store.layout.offset(i, j) + store.layout.nbytes(i, j)) for i, j in GRID.tiles()]
    store.close()
    return [(0, 20 + length + 8), (fields["checksums_offset"], fields["checksums_offset"] + 8 * places), *tiles]


@pytest.mark.parametrize(
    ("formats", "step"),
    [
        pytest.param(None, 37, id="fp64"),
        pytest.param(MIXED, 37, id="mixed"),
        pytest.param(None, 1, id="fp64, every byte", marks=pytest.mark.thorough),
        pytest.param(MIXED, 1, id="mixed, every byte", marks=pytest.mark.thorough),
    ],
)
def test_every_flipped_byte_is_an_error_or_without_effect(
    tmp_path: Path, small_headers: None, formats: tuple[PrecisionFormat, ...] | None, step: int
) -> None:
    """Every byte that is read, one by one; of the zeros between, every ``step``-th."""
    factor = made(tmp_path, formats)
    is_read = np.zeros(len(factor.raw), bool)
    for first, stop in read_spans(factor):
        is_read[first:stop] = True
    descriptor = os.open(factor.path, os.O_WRONLY)
    for place, byte in enumerate(factor.raw):
        if is_read[place] or place % step == 0:
            os.pwrite(descriptor, bytes([byte ^ (1 << place % 8)]), place)
            assert is_right(factor) != is_read[place], f"byte {place}"
            os.pwrite(descriptor, bytes([byte]), place)
    os.close(descriptor)
    assert is_right(factor)


def test_verify_finds_every_byte_that_is_not_as_it_was_written(tmp_path: Path, small_headers: None) -> None:
    """Also in the copy of the header and between the parts, where nothing reads; but in first places of widened tiles."""
    factor = made(tmp_path, None)
    assert verify_file(factor.path).is_whole
    for place in range(0, len(factor.raw), 97):
        with factor.path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([factor.raw[place] ^ 0x80]))
        found = verify_file(factor.path).damage
        factor.path.write_bytes(factor.raw)
        assert len(found) == 1, f"byte {place}"
        assert found[0].first is None or (found[0].stop is not None and found[0].first <= place < found[0].stop)


def test_a_damaged_tile_is_named_with_its_bytes_and_what_to_do(tmp_path: Path) -> None:
    factor = made(tmp_path, None)
    store = FileStore.open(factor.path)
    first = store.layout.offset(1, 0)
    store.close()
    factor.path.write_bytes(factor.raw[: first + 7] + b"\xff" + factor.raw[first + 8 :])
    with (
        oc.load(factor.path) as loaded,
        pytest.raises(oc.errors.DamagedFileError, match=r"tile \(1, 0\).*factor.*again") as caught,
    ):
        loaded.solve(np.ones(20))
    assert (caught.value.path, caught.value.tile) == (str(factor.path), (1, 0))
    assert (caught.value.first, caught.value.stop) == (first, first + 512)
    with oc.load(factor.path) as loaded:
        assert np.array_equal(loaded.rows(range(8), 8), factor.numbers[:8, :8]), "other tiles can be read"


@pytest.mark.parametrize("use", ["solve", "logdet", "diagonal", "matmul", "rows", "save", "save as array", "array", "update"])
def test_whatever_reads_a_damaged_tile_says_so(tmp_path: Path, use: str) -> None:
    factor = made(tmp_path, None)
    store = FileStore.open(factor.path)
    place = store.layout.offset(2, 2)
    store.close()
    factor.path.write_bytes(factor.raw[:place] + b"\1" + factor.raw[place + 1 :])
    uses: dict[str, Callable[[oc.CholeskyFactor], object]] = {
        "solve": lambda L: L.solve(np.ones(20)),
        "logdet": lambda L: L.logdet(),
        "diagonal": lambda L: L.diagonal(),
        "matmul": lambda L: L.matmul(np.ones(20)),
        "rows": lambda L: L.rows(range(17, 18), 20),
        "save": lambda L: L.save(tmp_path / "copy.ooc"),
        "save as array": lambda L: L.save(tmp_path / "copy.npy"),
        "array": np.asarray,
        "update": lambda L: L.update(np.ones(20)),
    }
    with oc.load(factor.path) as loaded, pytest.raises(oc.errors.DamagedFileError, match=r"tile \(2, 2\)"):
        uses[use](loaded)
    assert [each.name for each in tmp_path.iterdir()] == ["L.ooc"]


def test_rows_of_a_large_tile_are_checked_by_its_pieces_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = TileGrid(600, 600)  # 2.9 MB: three pieces
    factor = made(tmp_path, None, grid)
    store = FileStore.open(factor.path)
    place = store.layout.offset(0, 0) + 8 * 600 * 550
    read, preadv = [], os.preadv
    monkeypatch.setattr(os, "preadv", lambda *words: (read.append(count := preadv(*words)), count)[1])
    out = np.empty((1, 600))
    store.read_rows((0, 0), range(10, 11), out)
    assert np.array_equal(out[0], factor.numbers[10])
    assert sum(read) < 2**20 + 100
    with factor.path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff")
    store.read_rows((0, 0), range(10, 11), out)
    with pytest.raises(oc.errors.DamagedFileError, match=r"tile \(0, 0\)") as caught:
        store.read_rows((0, 0), range(550, 552), np.empty((2, 600)))
    assert caught.value.first is not None and caught.value.stop is not None
    assert caught.value.first <= place < caught.value.stop <= caught.value.first + 2**20
    assert store.damage((0, 0)) == [(caught.value.first, caught.value.stop)]
    store.close()
