"""The factor file: what is in it, what it survives, and what is refused."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.errors import TierError
from tests.host.factor_files import header_of, index_of, tile_checksum, with_header
from tests.host.stored_factors import KEY, lapack_factor, random_spd, write_factor
from tests.inside.dense import FileHeader, FileStore, TileLayout
from tests.inside.files import preallocate
from tests.inside.tasks import TileGrid

GRID = TileGrid(50, 16)
L = lapack_factor(random_spd(GRID.n, seed=11))


def open_descriptors() -> set[str]:
    return {
        os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name.isdigit() and _is_open(int(name))
    }


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.fixture(autouse=True)
def no_descriptor_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert not [name for name in open_descriptors() if name.startswith(str(tmp_path))]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A complete file with ``L``."""
    name = tmp_path / "L.ooc"
    store = FileStore.create(name, GRID, KEY)
    write_factor(L, store)
    store.close()
    return name


# layout


def test_a_file_is_read_by_its_documentation_alone(path: Path) -> None:
    fields = header_of(path)
    assert (fields["version"], fields["kind"], fields["layout"]) == (4, "cholesky-factor", "lower-tiles-by-rows")
    assert (fields["n"], fields["nb"], fields["complete"]) == (50, 16, True)
    assert (fields["formats"], fields["format_of_tile"], fields["byte_order"]) == (["fp64"], None, "little")
    assert fields["arithmetic_key"] == KEY
    assert header_of(path, fields["header_room"]) == fields, "the copy"
    assert (fields["checksum"], fields["checksums_offset"]) == ("xxh3-64", 2 * fields["header_room"])
    assert fields["data_offset"] >= 65536
    index = iter(index_of(path))
    offset, raw = fields["data_offset"], path.read_bytes()
    for i in range(4):
        for j in range(i + 1):
            part = L[16 * i : 16 * i + 16, 16 * j : 16 * j + 16]
            assert offset % 4096 == 0
            assert raw[offset : offset + part.nbytes] == part.astype("<f8").tobytes()
            assert next(index) == tile_checksum(part.tobytes(), 50, 16, i, j, "fp64")
            offset += -(-part.nbytes // 4096) * 4096
    assert len(raw) == offset


@given(n=st.integers(1, 300), nb=st.integers(1, 330), data_offset=st.sampled_from([0, 65536]))
def test_offsets_are_the_running_sum_of_aligned_tiles(n: int, nb: int, data_offset: int) -> None:
    layout = TileLayout(TileGrid(n, nb), data_offset)
    expected = data_offset
    for i, j in layout.grid.tiles():
        assert layout.offset(i, j) == expected
        expected += -(-layout.nbytes(i, j) // 4096) * 4096
    assert layout.end == expected


def test_a_long_key_moves_the_tiles_and_leaves_room(tmp_path: Path) -> None:
    key = {"libraries": "x" * 200_000}
    store = FileStore.create(tmp_path / "L.ooc", GRID, key)
    write_factor(L, store)
    store.close()
    fields = header_of(tmp_path / "L.ooc")
    assert fields["data_offset"] > 400_000
    reread = FileStore.open(tmp_path / "L.ooc")
    assert reread.header.arithmetic_key == key
    reread.close()


def test_a_header_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TierError, match="does not fit"):
        FileHeader(GRID, {"x": "y" * 5000}, header_room=4096).encode()


# life of a file


def test_a_file_gets_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    final = tmp_path / "L.ooc"
    final.write_bytes(b"precious")
    store = FileStore.create(final, GRID, KEY, replace=True)
    store.write((0, 0), np.tril(np.ones((16, 16))))
    assert final.read_bytes() == b"precious"
    with pytest.raises(TierError, match="incomplete"):
        FileStore.open(store.partial_path)
    write_factor(L, store)
    assert not Path(store.partial_path).exists()
    assert header_of(final)["complete"]
    store.close()


def test_discarding_removes_the_partial_file_and_spares_the_existing_one(tmp_path: Path) -> None:
    final = tmp_path / "L.ooc"
    final.write_bytes(b"precious")
    store = FileStore.create(final, GRID, KEY, replace=True)
    store.write((0, 0), np.ones((16, 16)))
    store.discard()
    store.discard()
    assert [entry.name for entry in tmp_path.iterdir()] == ["L.ooc"]
    assert final.read_bytes() == b"precious"


def test_discarding_a_complete_store_keeps_the_file(path: Path) -> None:
    store = FileStore.open(path)
    store.discard()
    assert header_of(path)["complete"]


def test_a_complete_file_is_not_written(path: Path) -> None:
    store = FileStore.open(path)
    with pytest.raises(TierError, match="complete"):
        store.write((0, 0), np.ones((16, 16)))
    store.close()


def test_the_bytes_are_on_the_disk_before_the_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    for name in ("fsync", "pwrite", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, real=real, name=name: (steps.append(name), real(*args))[1])
    store = FileStore.create(tmp_path / "L.ooc", TileGrid(3, 3), KEY)
    write_factor(np.eye(3), store)
    store.close()
    # header; tile and its checksum; index; all durable; copy of the header complete; durable; header complete; durable; its name;
    # the name durable
    written = ["pwrite", "pwrite", "pwrite", "pwrite"]
    assert steps == [*written, "fsync", "pwrite", "fsync", "pwrite", "fsync", "replace", "fsync"]


def test_a_link_to_another_disk_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "large-disk").mkdir()
    link, target = tmp_path / "L.ooc", tmp_path / "large-disk" / "L.ooc"
    link.symlink_to(target)
    store = FileStore.create(link, GRID, KEY)
    write_factor(L, store)
    store.close()
    assert link.is_symlink()
    assert header_of(target)["n"] == 50


def test_a_failing_rename_is_an_error_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(TierError, match=r"L\.ooc.*Input/output error"):
        write_factor(L, store)
    store.discard()
    assert list(tmp_path.iterdir()) == []


# several runs


def test_two_runs_cannot_write_one_file(tmp_path: Path) -> None:
    first = FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    with pytest.raises(TierError, match="another run"):
        FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    write_factor(L, first)  # the refused one has not touched it
    second = FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    second.discard()
    first.close()
    assert header_of(tmp_path / "L.ooc")["complete"]


def test_what_a_killed_run_left_is_replaced(tmp_path: Path) -> None:
    killed = FileStore.create(tmp_path / "L.ooc", TileGrid(400, 16), KEY)
    killed.write((1, 0), np.ones((16, 16)))
    killed.close()
    assert (tmp_path / "L.ooc.partial").stat().st_size > 10**6
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    write_factor(L, store)
    store.close()
    assert (tmp_path / "L.ooc").stat().st_size == TileLayout(GRID, 65536 + 4096).end


def test_a_file_completed_between_open_and_lock_is_not_emptied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = path.read_bytes()
    partial = path.with_name("L.ooc.partial")
    path.rename(partial)  # the other run is about to complete
    real_lock = fcntl.flock

    def lock_after_completion(descriptor: int, operation: int) -> None:
        if partial.exists() and not path.exists():
            partial.rename(path)
        real_lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_after_completion)
    store = FileStore.create(path, GRID, KEY)
    assert path.read_bytes() == finished
    store.discard()
    assert path.read_bytes() == finished


def test_a_file_system_without_locks_only_loses_the_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    write_factor(L, store)
    store.close()
    assert header_of(tmp_path / "L.ooc")["complete"]


# files that are not what they should be


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 19, 20, 100, 4096, 65536, 65537, -4096, -1])
def test_every_truncation_is_found_at_opening(path: Path, keep: int) -> None:
    size = path.stat().st_size
    os.truncate(path, keep if keep >= 0 else size + keep)
    with pytest.raises(TierError, match=str(path)):
        FileStore.open(path)


def test_any_damaged_byte_of_the_header_is_found(path: Path) -> None:
    raw = path.read_bytes()
    length = int.from_bytes(raw[8:16], "little")
    for place in range(20 + length + 8):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(bytes([raw[place] ^ 0x10]))
        with pytest.raises(TierError, match=str(path)):
            FileStore.open(path)
        path.write_bytes(raw)


def test_a_later_version_may_add_fields(path: Path) -> None:
    with_header(path, signatures=[1, 2, 3], created_by="9.9")
    store = FileStore.open(path)
    assert store.header.grid == GRID
    assert store.header.created_by == "9.9"
    store.close()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 5),
        ("kind", "checkpoint"),
        ("layout", "by-columns"),
        ("formats", ["fp64", "fp16"]),
        ("byte_order", "big"),
        ("tile_alignment", 512),
        ("checksum", "crc32"),
        ("piece_bytes", 4096),
    ],
)
def test_what_this_version_cannot_read_is_refused_by_name(path: Path, field: str, value: object) -> None:
    with_header(path, created_by="9.9", **{field: value})
    with pytest.raises(TierError, match=rf"{field}.*9\.9"):
        FileStore.open(path)


@pytest.mark.parametrize(
    "field",
    [
        *("n", "nb", "complete", "data_offset", "arithmetic_key", "created_by", "version", "layout", "header_room", "checksum"),
        *("checksums_offset", "pieces_offset", "piece_bytes", "index_hash", "checkpoint"),
    ],
)
def test_a_missing_field_is_refused_by_name(path: Path, field: str) -> None:
    with_header(path, **{field: None})
    with pytest.raises(TierError, match=field):
        FileStore.open(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("n", -1), ("nb", -1), ("n", "many"), ("n", 50.0), ("n", True), ("arithmetic_key", 3), ("format_of_tile", [0])),
        *(("data_offset", 4097), ("data_offset", -4096), ("data_offset", 2**20), ("header_room", 0), ("header_room", 2**40)),
        *(("checksums_offset", 8192), ("index_hash", "g" * 16), ("index_hash", 3), ("checkpoint", [])),
    ],
)
def test_a_field_that_makes_no_sense_is_refused(path: Path, field: str, value: object) -> None:
    with_header(path, **{field: value})
    with pytest.raises(TierError, match=str(path)):
        FileStore.open(path)


def test_other_files_are_refused_with_advice(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(3))
    with pytest.raises(TierError, match=r"numpy\.load"):
        FileStore.open(tmp_path / "a.npy")
    with pytest.raises(TierError, match="no ordinary file"):
        FileStore.open(tmp_path)
    with pytest.raises(FileNotFoundError):
        FileStore.open(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["folder", "missing/L.ooc"])
def test_places_where_no_file_can_be_are_refused_at_the_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(TierError, match=name):
        FileStore.create(tmp_path / name, GRID, KEY)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(("key", "error"), [({"a": np.ones(2)}, TypeError), ({"a": float("nan")}, ValueError)])
def test_a_key_that_json_cannot_hold_leaves_no_file(tmp_path: Path, key: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        FileStore.create(tmp_path / "L.ooc", GRID, key)
    assert list(tmp_path.iterdir()) == []


# the disk


def test_short_reads_and_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:1001], offset))
    monkeypatch.setattr(os, "preadv", lambda descriptor, parts, offset: preadv(descriptor, [parts[0][:777]], offset))
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    write_factor(L, store)
    store.close()
    store = FileStore.open(tmp_path / "L.ooc")
    for i, j in GRID.tiles():
        tile = np.empty(GRID.shape(i, j))
        store.read((i, j), tile)
        assert np.array_equal(tile, L[16 * i : 16 * i + 16, 16 * j : 16 * j + 16])
    store.close()


def test_a_disk_that_is_too_small_is_met_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(TierError, match=r"no room for the \d{19} bytes.*bytes are free.*larger disk"):
        FileStore.create(tmp_path / "L.ooc", TileGrid(10**9, 10**5), KEY)
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_while_space_is_reserved_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "posix_fallocate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_during_the_run_names_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(TierError, match=r"L\.ooc\.partial: no room for 2048 bytes.*bytes are free.*larger disk"):
        store.write((1, 0), np.ones((16, 16)))
    store.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_that_cannot_reserve_still_gives_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with (tmp_path / "x").open("wb") as file:
        preallocate(file.fileno(), 12345, "x")
    assert (tmp_path / "x").stat().st_size == 12345


def test_a_file_that_is_cut_while_it_is_used_is_an_error(path: Path) -> None:
    store = FileStore.open(path)
    os.truncate(path, 65536 + 4096 + 100)
    with pytest.raises(TierError, match="ends at byte"):
        store.read((0, 0), np.empty((16, 16)))
    store.close()


def test_a_failing_disk_is_an_error_with_its_reason(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    store = FileStore.open(path)
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(TierError, match="Input/output error"):
        store.read((0, 0), np.empty((16, 16)))
    store.close()


def test_a_file_is_never_mapped(path: Path) -> None:
    store = FileStore.open(path)
    store.read((2, 1), np.empty((16, 16)))
    assert str(path) not in Path("/proc/self/maps").read_text()
    store.close()


def test_a_read_sees_a_write_of_another_thread(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY)
    out = np.empty((16, 16))
    for value in range(50):
        writer = threading.Thread(target=store.write, args=((2, 1), np.full((16, 16), float(value))))
        writer.start()
        writer.join()
        store.read((2, 1), out)
        assert (out == value).all()
    store.discard()
