"""What the factor file says of a disk that refuses: each reason with its own advice, and nothing left open."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.errors import OutputError, TierError
from tests.builders import file_store
from tests.host.runs import COMMAND, ENVIRONMENT
from tests.host.stored_factors import KEY, lapack_factor, random_spd, write_factor
from tests.inside.dense import FileStore
from tests.inside.tasks import TileGrid

GRID = TileGrid(50, 16)
L = lapack_factor(random_spd(GRID.n, seed=11))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A complete file with ``L``."""
    store = file_store(tmp_path / "L.ooc", GRID, KEY)
    write_factor(L, store)
    store.close()
    return tmp_path / "L.ooc"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, r"no room.*\d+ bytes are free.*larger disk"),
        (errno.EDQUOT, r"quota.*another file system"),
        (errno.EFBIG, r"largest file.*ulimit -f"),
        (errno.EIO, "check the disk"),
    ],
)
def test_each_reason_why_a_file_does_not_grow_has_its_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(TierError, match=rf"L\.ooc\.partial: .*{reason}") as caught:
        file_store(tmp_path / "L.ooc", GRID, KEY)
    assert code == errno.ENOSPC or "free" not in str(caught.value), "the disk has room"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("processes")
def test_the_limit_of_a_process_on_its_files_is_named(tmp_path: Path) -> None:
    """In a process of its own: the limit holds for every file that this one would write."""
    code = (
        "import resource, numpy as np, ooc_chol as oc\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n    oc.cholesky(np.eye(256), store='L.ooc')\n"
        "except oc.errors.TierError as error:\n    print(error)\n"
    )
    done = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=ENVIRONMENT)
    assert "ulimit -f" in done.stdout and "100000 bytes" in done.stdout and "free" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_locked_is_an_error_of_the_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(TierError, match=r"L\.ooc\.partial: .*lock.*Input/output error"):
        file_store(tmp_path / "L.ooc", GRID, KEY)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_close_that_fails_is_an_error_of_the_tier_and_happens_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close = os.close

    def fail(descriptor: int) -> None:
        close(descriptor)  # as the system does: the descriptor is gone, whatever it answers
        raise OSError(errno.EIO, "Input/output error")

    store = FileStore.open(path)
    with monkeypatch.context() as patch, pytest.raises(TierError, match=r"closing.*Input/output error"):
        patch.setattr(os, "close", fail)
        store.close()
    store.close()


def test_the_error_that_ends_a_run_is_the_one_that_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = file_store(tmp_path / "L.ooc", GRID, KEY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        store.discard()  # the error that led here goes on
    file_store(tmp_path / "L.ooc", GRID, KEY).discard()
    assert list(tmp_path.iterdir()) == []


def test_a_flush_of_the_folder_that_fails_says_that_the_factor_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, fsync = [], os.fsync

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 4:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    store = file_store(tmp_path / "L.ooc", GRID, KEY)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(TierError, match="the factor is complete and load opens it"):
        write_factor(L, store)
    (tmp_path / "L.ooc.partial").write_text("of another run")
    store.discard()
    assert (tmp_path / "L.ooc.partial").read_text() == "of another run"
    FileStore.open(tmp_path / "L.ooc").close()


def refused_once(monkeypatch: pytest.MonkeyPatch, name: str, wanted: Callable[[str], bool], code: int = errno.EIO) -> None:
    """Let the first call of a function of ``os`` fail whose argument is wanted."""
    real, left = getattr(os, name), [OSError(code, os.strerror(code))]

    def call(first: Any, *more: Any, **options: Any) -> Any:
        if left and wanted(str(first)):
            raise left.pop()
        return real(first, *more, **options)

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("name", ["open", "pread", "close"])
def test_a_checkpoint_that_cannot_be_looked_at_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    partial = tmp_path / "L.ooc.partial"
    store = FileStore.create(tmp_path / "L.ooc", GRID, KEY, checkpoint={})
    store.keep_unfinished()
    store.close()
    before, descriptors = partial.read_bytes(), len(os.listdir("/proc/self/fd"))
    wanted = (lambda first: first.isdigit()) if name != "open" else (lambda first: first == str(partial))
    with monkeypatch.context() as patch, pytest.raises(TierError, match=r"L\.ooc\.partial"):
        refused_once(patch, name, wanted)
        oc.cholesky(np.eye(GRID.n), tile_size=GRID.nb, store=tmp_path / "L.ooc")
    assert partial.read_bytes() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors + (name == "close")  # one that was never closed


@pytest.mark.parametrize(("name", "says"), [("open", "cannot be read"), ("stat", "cannot be looked at")])
def test_a_finished_factor_whose_name_cannot_be_looked_at_is_kept_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    before = path.read_bytes()
    store = file_store(path, GRID, KEY)
    refused_once(monkeypatch, name, lambda first: first == str(path))
    with pytest.raises(OutputError, match=rf"L\.ooc {says} .*|L\.ooc exists already and {says} .*") as caught:
        write_factor(L, store)
    (beside,) = (found for found in path.parent.iterdir() if found != path)
    assert "Input/output error" in str(caught.value) and "meanwhile" not in str(caught.value)
    assert str(beside) in str(caught.value) and path.read_bytes() == before
    store.close()
    FileStore.open(beside).close()


def test_the_way_past_the_cache_is_an_error_of_the_tier_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, before = file_store(tmp_path / "L.ooc", GRID, KEY), len(os.listdir("/proc/self/fd"))
    for name, wanted in (("open", lambda first: first.startswith("/proc")), ("preadv", str.isdigit)):
        with monkeypatch.context() as patch, pytest.raises(TierError, match=r"L\.ooc\.partial: .*past.*Input/output error"):
            refused_once(patch, name, wanted)
            store.keep_out_of_cache()
        assert len(os.listdir("/proc/self/fd")) == before
    store.keep_out_of_cache()
    close = os.close

    def fail(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(TierError, match=r"closing.*Input/output error"):
        patch.setattr(os, "close", fail)
        store.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
