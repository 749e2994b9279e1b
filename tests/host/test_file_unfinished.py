"""What a run that was ended leaves: it is opened again, and every tile of it is known to be there, damaged or missing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.factor_files import header_of
from tests.host.stored_factors import KEY, lapack_factor, random_spd, write_factor
from tests.inside.dense import FileStore, verify_file
from tests.inside.precision import FP32, FP64
from tests.inside.process import ThreadTeam
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.host

GRID = TileGrid(50, 16)
L = lapack_factor(random_spd(GRID.n, seed=4))


def tile(i: int, j: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.ascontiguousarray(L[16 * i : 16 * i + 16, 16 * j : 16 * j + 16])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A factor of which three tiles are written, and one of these is damaged."""
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY, checkpoint={"step": 7})
    for index in ((0, 0), (1, 0), (2, 1)):
        store.write(index, tile(*index))
    offset = store.layout.offset(1, 0)
    store.close()
    with Path(store.partial_path).open("r+b") as file:
        file.seek(offset + 100)
        file.write(b"\xff")
    return tmp_path / "L.ooc"


@pytest.mark.parametrize("threads", [0, 2])
def test_what_is_there_is_known_and_the_rest_can_be_written(path: Path, threads: int) -> None:
    store = FileStore.open_unfinished(path)
    assert (store.grid, store.header.arithmetic_key, store.checkpoint) == (GRID, KEY, {"step": 7})
    team = ThreadTeam(threads) if threads else None
    good, bad, missing = store.verify_tiles(team=team)
    if team is not None:
        team.close()
    assert (good, bad, missing) == ({(0, 0), (2, 1)}, {(1, 0)}, set(GRID.tiles()) - {(0, 0), (1, 0), (2, 1)})
    assert store.verify_tiles([(1, 0), (2, 1)]) == ({(2, 1)}, {(1, 0)}, set())
    with pytest.raises(oc.errors.DamagedFileError, match=r"\(3, 3\).*never written"):
        store.read((3, 3), np.empty((2, 2)))
    with pytest.raises(oc.errors.TierError, match=r"\(1, 1\) was never written"):
        store.complete()
    for index in bad | missing:
        store.write(index, tile(*index))
    store.complete()
    store.close()
    with oc.load(path) as factor:
        assert np.array_equal(np.asarray(factor), np.tril(L))
    assert header_of(path)["checkpoint"] == {"step": 7}


def test_a_file_that_was_complete_but_for_its_name_is_opened_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    with monkeypatch.context() as patch, pytest.raises(oc.errors.TierError, match="Input/output"):
        patch.setattr(os, "replace", _fail)
        write_factor(L, store)
    store.close()
    store = FileStore.open_unfinished(tmp_path / "L.ooc")
    assert store.verify_tiles() == (set(GRID.tiles()), set(), set())
    store.complete()
    store.close()
    assert verify_file(tmp_path / "L.ooc").is_whole


def _fail(*_: object) -> None:
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("torn", ["the header", "its copy", "both"])
def test_a_power_cut_between_two_versions_of_the_header_leaves_one(path: Path, torn: str) -> None:
    partial = Path(f"{path}.partial")
    room = header_of(partial)["header_room"]
    with partial.open("r+b") as file:
        for part, start in (("the header", 0), ("its copy", room)):
            if torn in (part, "both"):
                file.seek(start + 200)
                file.write(b"\0" * 512)
    if torn == "both":
        with pytest.raises(oc.errors.DamagedFileError, match="header is damaged"):
            FileStore.open_unfinished(path)
        return
    store = FileStore.open_unfinished(path)
    assert store.checkpoint == {"step": 7}
    store.save_checkpoint({"step": 8})
    store.close()
    assert header_of(partial) == header_of(partial, room)
    assert header_of(partial)["checkpoint"] == {"step": 8}


def test_the_copy_is_durable_before_the_header_changes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, steps = FileStore.open_unfinished(path), list[object]()
    pwrite, fsync = os.pwrite, os.fsync
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: (steps.append(offset), pwrite(file, data, offset))[1])
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("fsync"), fsync(file))[1])
    store.save_checkpoint({"step": 9})
    assert steps == [store.header.header_room, "fsync", 0, "fsync"]
    store.close()


def test_tiles_that_were_widened_are_known_after_a_checkpoint(tmp_path: Path) -> None:
    grid = TileGrid(32, 16)
    store = FileStore.create(tmp_path / "L.ooc", grid, KEY, (FP64, FP32, FP64))
    store.write((1, 0), tile(1, 0))
    store.widen([(1, 0)])
    store.close()
    store = FileStore.open_unfinished(tmp_path / "L.ooc")  # the header was not told: the narrow tile is what counts
    assert store.verify_tiles([(1, 0)]).good == {(1, 0)}
    store.widen([(1, 0)])
    assert store.verify_tiles([(1, 0)]).missing == {(1, 0)}
    store.save_checkpoint({})
    store.write((1, 0), tile(1, 0))
    store.close()
    store = FileStore.open_unfinished(tmp_path / "L.ooc")
    assert store.verify_tiles([(1, 0)]).good == {(1, 0)}
    store.read((1, 0), out := np.empty((16, 16)))
    assert np.array_equal(out, tile(1, 0))
    store.discard()


def test_a_file_that_is_cut_gets_its_size_again(path: Path) -> None:
    partial = Path(f"{path}.partial")
    size = partial.stat().st_size
    os.truncate(partial, size - 3 * 4096)
    store = FileStore.open_unfinished(path)
    assert partial.stat().st_size == size
    assert store.verify_tiles().good == {(0, 0), (2, 1)}
    store.close()


def test_one_run_at_a_time_goes_on(path: Path) -> None:
    store = FileStore.open_unfinished(path)
    with pytest.raises(oc.errors.TierError, match="another run"):
        FileStore.open_unfinished(path)
    store.close()
    os.truncate(f"{path}.partial", 7)
    with pytest.raises(oc.errors.DamagedFileError, match="not a factor file"):
        FileStore.open_unfinished(path)
    os.truncate(f"{path}.partial", 0)
    with pytest.raises(FileNotFoundError, match="nothing is in it"):
        FileStore.open_unfinished(path)
    os.unlink(f"{path}.partial")
    with pytest.raises(FileNotFoundError):
        FileStore.open_unfinished(path)
    os.symlink("/dev/null", f"{path}.partial")
    with pytest.raises(oc.errors.TierError, match="symbolic link"):
        FileStore.open_unfinished(path)


@pytest.mark.parametrize("checkpoint", [{"x": "y" * 20_000_000}, {"x": float("nan")}, {"x": object()}])
def test_a_checkpoint_that_cannot_be_kept_changes_nothing(path: Path, checkpoint: dict[str, object]) -> None:
    store, before = FileStore.open_unfinished(path), header_of(Path(f"{path}.partial"))
    with pytest.raises((oc.errors.TierError, ValueError, TypeError)):
        store.save_checkpoint(checkpoint)
    assert header_of(Path(f"{path}.partial")) == before
    assert store.checkpoint == {"step": 7}
    store.close()


def test_an_unfinished_file_is_verified_as_far_as_it_goes(path: Path) -> None:
    verdict = verify_file(f"{path}.partial")
    assert (verdict.is_complete, verdict.tiles, verdict.missing) == (False, 3, 7)
    assert [each.tile for each in verdict.damage] == [(1, 0)]
