"""Two runs that write one Zarr group: one of them wins, the other is told, and the group is one of the two."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.golden import cauchy
from tests.inside.dense import Claim, ZarrStore, verify
from tests.inside.files import LOCK
from tests.inside.tasks import TileGrid, Window

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "zarr_threads", "folder")]

N, NB = 150, 32
FIRST, SECOND = cauchy(N, 0.05, 2, 1e-3), cauchy(N, 0.1, 3, 1e-2)
PLAIN = {"tile_size": NB, "devices": "host:0", "memory_budget": "200 KiB"}
ONES = np.ones((N, 1))

#: Ways to write a group: the call, and whether it replaces what is there.
WAYS = {
    "a new factor": (lambda a, place: oc.cholesky(a, store=place, **PLAIN), False),
    "replace": (lambda a, place: oc.cholesky(a, store=place, replace=True, **PLAIN), True),
    "a new checkpoint": (lambda a, place: oc.cholesky(a, store=place, checkpoint=True, **PLAIN), False),
    "replace by a checkpoint": (lambda a, place: oc.cholesky(a, checkpoint=place, replace=True, **PLAIN), True),
    "mixed": (lambda a, place: oc.cholesky(a, 1e-4, store=place, replace=True, **PLAIN), True),
    "save": (lambda a, place: oc.cholesky(a, **PLAIN).save(place, replace=True), True),
    "update": (lambda a, place: oc.cholesky(a, **PLAIN).update(ONES, store=place), False),
}


def l_of(call: Callable, a, folder: str) -> bytes:
    """L as the call writes it where nobody disturbs it."""
    close(call(a, folder))
    return loaded(folder)


def loaded(place: str) -> bytes:
    """L of a group."""
    with oc.load(place) as factor:
        return np.asarray(factor).tobytes()


def close(result) -> None:
    """Close a factor, if it is one."""
    if result is not None:
        result.close()


def has_a_tile(chunk: Path) -> bool:
    """Whether a chunk of checksums, which ends with one of its own, has that of a tile: those of diagonal ones come late."""
    return chunk.exists() and any(chunk.read_bytes()[:-4])


class Barrier:
    """Holds the first run before it writes its first tile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_there, self.may_go = threading.Event(), threading.Event()
        look = Claim.look

        def held(claim: Claim) -> None:
            if not self.is_there.is_set():
                self.is_there.set()
                assert self.may_go.wait(60)
            look(claim)

        monkeypatch.setattr(Claim, "look", held)


#: Each way, where nothing is there and, where it replaces, where something is.
CASES = [(way, place, there) for way in WAYS for place in ("L.zarr", "memory://a/L.zarr") for there in (False, WAYS[way][1])]


@pytest.mark.parametrize(("way", "place", "is_there"), sorted(set(CASES)))
def test_of_two_runs_one_wins_and_the_other_is_told(way, place, is_there, monkeypatch):
    call, replaces = WAYS[way]
    rights = [l_of(call, a, f"right{at}.zarr") for at, a in enumerate((FIRST, SECOND))]
    if is_there:
        close(call(SECOND + np.eye(N), place))
    barrier, is_local = Barrier(monkeypatch), place == "L.zarr"
    second_wins = replaces and not is_local
    with ThreadPoolExecutor(1) as runs:
        first = runs.submit(call, FIRST, place)
        try:
            assert barrier.is_there.wait(60)
            if second_wins:
                close(call(SECOND, place))
            else:
                why = "another run is writing this group" if is_local else "is an unfinished factor|is of another factorization"
                with pytest.raises((oc.errors.TierError, oc.errors.CheckpointError), match=why):
                    call(SECOND, place)
        finally:
            barrier.may_go.set()
        if second_wins:
            with pytest.raises(oc.errors.TierError, match="another run is writing this group by now"):
                first.result()
        else:
            close(first.result())
    assert loaded(place) == rights[second_wins]
    assert verify(place).is_whole
    assert not Path("L.zarr", LOCK).exists()


#: A run in a process of its own, which says when it reads A, and then waits for a line.
HELD = """
import sys
import numpy as np, ooc_chol as oc
from tests.host.checkpoint_runs import stop_at
a = np.load("a.npy")
held = stop_at(a, 28, lambda: (print("reading", flush=True), sys.stdin.readline()))
oc.cholesky(held, checkpoint="L.zarr", tile_size=32, devices="host:0", memory_budget="200 KiB").close()
"""


@pytest.fixture
def other_process(processes: None):
    """A process that runs ``HELD``, up to where it waits."""
    root = str(Path(oc.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    np.save("a.npy", FIRST)
    words = [sys.executable, "-c", HELD]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout.readline() == "reading\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"checkpoint": True}, {"checkpoint": True, "replace": True}])
@pytest.mark.commit
def test_a_run_of_another_process_is_named_and_left_alone(other_process, options):
    what = rf"L\.zarr.* another run is writing this group \(process {other_process.pid}: "
    with pytest.raises(oc.errors.TierError, match=what):
        oc.cholesky(SECOND, store="L.zarr", **options, **PLAIN)
    with oc.cholesky(SECOND, **PLAIN) as factor, pytest.raises(oc.errors.TierError, match=what):
        factor.save("L.zarr", replace=True)
    other_process.communicate("go on\n")
    assert other_process.returncode == 0
    assert loaded("L.zarr") == l_of(WAYS["a new factor"][0], FIRST, "right.zarr")


@pytest.mark.parametrize("options", [{"checkpoint": True}, {"checkpoint": True, "replace": True}])
def test_a_run_that_was_killed_locks_nobody_out(other_process, options):
    while not has_a_tile(Path("L.zarr/checksums/c/0/0")):  # another thread writes it
        time.sleep(0.01)
    other_process.kill()
    other_process.wait()
    assert Path("L.zarr", LOCK).exists()
    with oc.cholesky(FIRST, store="L.zarr", **options, **PLAIN) as factor:
        assert bool(factor.report.resumed) is ("replace" not in options)
    assert loaded("L.zarr") == l_of(WAYS["a new factor"][0], FIRST, "right.zarr")
    assert not Path("L.zarr", LOCK).exists()


@pytest.mark.parametrize("place", ["L.zarr", "memory://a/L.zarr"])
@pytest.mark.parametrize("does", ["write", "finish", "complete", "save_checkpoint", "flush", "discard"])
def test_an_earlier_run_touches_nothing_of_a_later_one(does, place):
    grid = TileGrid(64, 32)

    def filled(store: ZarrStore) -> None:
        for index in grid.tiles():
            store.write(index, np.full(grid.shape(*index), 2.0))

    earlier = ZarrStore.create(place, grid, height=2)
    for index in grid.tiles():
        earlier.write(index, np.ones(grid.shape(*index)))
    earlier.keep_unfinished()
    worker = ZarrStore.open_for_writing(place, earlier.header.writer)
    earlier._claim.release()  # as where there are no locks
    later = ZarrStore.create(place, grid, height=2, replace=True)
    filled(later)
    calls = {
        "write": lambda: earlier.write((0, 0), np.ones((32, 32))),
        "finish": lambda: earlier.finish_window(whole()),
        "complete": earlier.complete,
        "save_checkpoint": lambda: earlier.save_checkpoint({"a": 1}),
        "flush": earlier.flush,
    }
    earlier._claim._next_look = 0.0  # a write looks now and then: the next one does
    if does == "discard":
        earlier.discard()
    else:
        with pytest.raises(oc.errors.TierError, match="another run is writing this group by now"):
            calls[does]()
    with pytest.raises(oc.errors.TierError, match="another run is writing this group by now"):
        worker._claim.check()
    with pytest.raises(oc.errors.TierError, match="another run is writing this group by now"):
        ZarrStore.open_for_writing(place, worker.header.writer)
    later.complete()
    assert verify(place).is_whole
    for store in (earlier, worker, later):
        store.close()
    with closing(ZarrStore.open(place)) as store:
        store.read((1, 0), out := np.empty((32, 32)))
        assert np.all(out == 2.0)


def whole() -> Window:
    """The whole of a factor of two tile rows."""
    return Window(range(2), range(2))


def test_an_earlier_run_that_comes_back_finds_a_finished_group_and_leaves_it():
    place, grid = "memory://a/L.zarr", TileGrid(32, 32)
    earlier, later = (ZarrStore.create(place, grid, replace=True) for _ in range(2))
    for store in (later, earlier):
        if store is earlier:
            with pytest.raises(oc.errors.TierError, match="or has completed or removed it"):
                store.write((0, 0), np.eye(32))
        else:
            store.write((0, 0), np.eye(32))
            store.complete()
    earlier.discard()
    assert verify(place).is_whole


@pytest.mark.usefixtures("processes")
def test_a_child_of_a_run_leaves_its_lock():
    store = ZarrStore.create("L.zarr", TileGrid(32, 32))
    child = os.fork()
    if not child:
        store.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(oc.errors.TierError, match="another run is writing this group"):
        ZarrStore.create("L.zarr", TileGrid(32, 32), replace=True)
    store.write((0, 0), np.eye(32))
    store.complete()


def test_what_has_the_name_of_the_lock_is_not_removed():
    Path("L.zarr").mkdir()
    Path("L.zarr", LOCK).write_text("the only copy")
    with pytest.raises(oc.errors.TierError, match="something else is there"):
        oc.cholesky(FIRST, store="L.zarr", **PLAIN)
    assert Path("L.zarr", LOCK).read_text() == "the only copy"


def test_a_store_that_is_forgotten_lets_go_of_its_lock():
    ZarrStore.create("L.zarr", TileGrid(32, 32))
    ZarrStore.create("L.zarr", TileGrid(32, 32), replace=True).discard()
    assert not Path("L.zarr").exists()
