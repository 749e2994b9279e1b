"""Checkpoints: whatever ended a run, the same call goes on from its unfinished file, to the same bits, or says why not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.checkpoint_runs import ENGINES, NB, PLAIN, RESIDUE, A, N, StopError, bits, stop_at
from tests.host.runs import ENVIRONMENT
from tests.inside.cli import main
from tests.inside.dense import FileStore, _blocks_of, _blocks_of_device, fingerprint, key, sampled_blocks
from tests.inside.hardware import HostDevice
from tests.inside.precision import FP64
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.usefixtures("no_hang")

ROOT = Path(oc.__file__).parents[1]


def tiles_written(partial: Path) -> int:
    """How many checksums the index of an unfinished file has."""
    raw = partial.read_bytes()
    fields = json.loads(raw[20 : 20 + int.from_bytes(raw[8:16], "little")])
    nt = -(-fields["n"] // fields["nb"])
    return int(np.count_nonzero(np.frombuffer(raw, np.uint64, nt * (nt + 1) // 2, fields["checksums_offset"])))


#: A function is called for 16 blocks of a sample, and then for 55 tiles, of which a budget of 200 KiB holds 25.
def begun(path: Path, a=A, calls: int = 62, **options) -> Path:
    """A checkpoint of a run that failed at some call of its tile function, with more than five tiles behind it."""
    partial = path.with_name(f"{path.name}.partial")

    def stop():
        began = time.perf_counter()
        while tiles_written(partial) <= 5 and time.perf_counter() - began < 5.0:  # on a busy machine they may be under way
            time.sleep(0.01)
        raise StopError

    with pytest.raises(StopError) as caught:
        oc.cholesky(stop_at(a, calls, stop), checkpoint=path, **{**PLAIN, **options})
    (note,) = caught.value.__notes__
    assert f"in the checkpoint {partial}: the same call goes on from it" in note
    assert partial.exists() and not path.exists()
    return partial


# the promise


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("kills", [pytest.param(12, marks=pytest.mark.commit), 54])
def test_kills_at_random_moments_are_gone_on_from_to_the_same_bits(kills, tmp_path):
    """Every engine with as many kills; what ends a child is SIGKILL at any time, or in the middle of a write."""
    told = tmp_path / "kills.json"
    words = ["kills", "--kills", str(kills), "--seed", "1", "--name", "kills", "--output", tmp_path]
    command = [sys.executable, "-m", "benchmarks", *words]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(told.read_text(encoding="utf-8"))
    assert found["kills"] >= kills and found["wrong"] == 0
    assert set(found["ways"]) == {"time", "write", "torn write"}
    engines = sum(each["kills"] > 0 for each in found["cases"].values())
    assert engines == len(found["cases"]) if kills >= 54 else engines >= 4


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_failed_is_gone_on_from_with_what_it_left_open(engine, tmp_path):
    """Tile size and engine are those of the checkpoint where the second call leaves them open; nothing is computed twice."""
    a, options = ENGINES[engine]
    right = bits(oc.cholesky(a, **options))
    partial = begun(tmp_path / "L", a, 62 if "precision_threshold" not in options else 118, **options)
    there = states(tmp_path / "L").good
    open_now = {name: value for name, value in options.items() if name not in ("tile_size", "fp64", "moduli", "memory_budget")}
    factor = oc.cholesky(a, checkpoint=tmp_path / "L", **open_now)
    report = factor.report
    assert report.resumed == len(there) > 5 and report.plan.grid.nb == NB
    assert f"{report.resumed} of {report.plan.grid.n_tiles} tiles were in the checkpoint" in str(report)
    assert bits(factor) == right and not partial.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"memory_budget": "1 MiB"},
        {"devices": "host:0,host:1"},
        {"policy": "v1"},
        {"objective": "bytes"},
        {"host_budget": "300 KiB"},
    ],
    ids=str,
)
def test_budget_devices_and_policy_may_be_others(other, tmp_path):
    right = bits(oc.cholesky(A, **PLAIN))
    begun(tmp_path / "L")
    assert bits(oc.cholesky(A, checkpoint=tmp_path / "L", **{**PLAIN, **other})) == right


@pytest.mark.parametrize("engine", ["native", "mixed", "complex"])
def test_with_some_tiles_in_host_memory_the_file_is_a_checkpoint_all_the_same(engine, tmp_path):
    a, options = ENGINES[engine]
    right = bits(oc.cholesky(a, **options))
    assert oc.plan(a, store=tmp_path / "L", host_budget="150 KiB", **options).host_tiles
    begun(tmp_path / "L", a, 62 if "precision_threshold" not in options else 118, host_budget="150 KiB", **options)
    with oc.cholesky(a, checkpoint=tmp_path / "L", **{**options, "host_budget": "200 KiB"}) as factor:
        assert factor.report.resumed > 0
        assert np.asarray(factor).tobytes() == right


def test_a_plan_may_be_given_at_both_calls(tmp_path):
    plan, right = oc.plan(stop_at(A, 0), **PLAIN), bits(oc.cholesky(A, **PLAIN))
    with pytest.raises(StopError):
        oc.cholesky(stop_at(A, 60), plan=plan, store=tmp_path / "L", checkpoint=True)
    with oc.cholesky(stop_at(A, 0), plan=plan, store=tmp_path / "L", checkpoint=True) as factor:
        assert factor.report.resumed > 5 and bits(factor) == right


def test_progress_counts_what_was_there_as_done(tmp_path):
    begun(tmp_path / "L")
    seen = []
    oc.cholesky(A, checkpoint=tmp_path / "L", progress=lambda *now: seen.append(now), **PLAIN).close()
    done, totals = [now[0] for now in seen], {now[1] for now in seen}
    assert done == sorted(done) and len(totals) == 1 and done[-1] == totals.pop()
    assert abs(done[-1] - N**3 / 3) < 0.1 * N**3 and done[0] > 0.1 * done[-1]


def test_the_certificate_is_valid_after_going_on(tmp_path):
    threshold = {"precision_threshold": 1e-4}
    begun(tmp_path / "L", calls=118, **threshold)
    with oc.cholesky(A, checkpoint=tmp_path / "L", **PLAIN, **threshold) as factor:
        dense, report = np.asarray(factor), factor.report
    error = np.linalg.norm(dense @ dense.T - A) / np.linalg.norm(A)
    assert report.resumed > 5 and 0 < error <= report.certified_bound.total <= 1e-4
    assert 0 < report.estimated_error.total < 1e-3


# what is there already


def test_a_finished_factor_of_the_same_call_is_given_at_once(tmp_path):
    path, seen = tmp_path / "L", []
    right = bits(oc.cholesky(A, checkpoint=path, **PLAIN))
    before = path.stat()
    with oc.cholesky(A, checkpoint=path, progress=lambda *now: seen.append(now), **PLAIN) as factor:
        assert factor.report.resumed == factor.report.plan.grid.n_tiles
        assert "tiles were in the checkpoint; 0 were computed" in str(factor.report)
        for page in (str(factor.report), str(factor.report.plan)):
            assert "bounds     nothing is left to do\n" in page and not re.search(r"^ +\w+ *$", page, re.MULTILINE), page
        assert bits(factor) == right
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_finished_factor_of_another_call_is_refused(tmp_path):
    path = tmp_path / "L"
    oc.cholesky(A, store=path, **PLAIN).close()
    with pytest.raises(oc.errors.CheckpointError, match="a finished factor without a checkpoint"):
        oc.cholesky(A, checkpoint=path, **PLAIN)
    oc.cholesky(A, checkpoint=path, replace=True, **PLAIN).close()
    with pytest.raises(oc.errors.CheckpointError, match="entries of A"):
        oc.cholesky(2.0 * A, checkpoint=path, **PLAIN)


def changed(row: int, col: int):
    """A with one entry of its lower triangle changed."""
    other = A.copy()
    other[row, col] += 1e-12
    return other


OTHERS = {
    "another order": (A[:200, :200], {}, "n", ("300", "200")),
    "another type": (A.astype(np.float32), {}, "dtype of A", ("float64", "float32")),
    "a complex matrix": (A.astype(complex), {}, "dtype", ("float64", "complex128")),
    "other entries": (changed(70, 3), {}, "entries of A in A[64:128, 0:64]", None),
    "tiles": (A, {"tile_size": 64}, "tile_size", ("32", "64")),
    "engine": (A, RESIDUE, "fp64", ("native", "residue")),
    "threshold": (A, {"precision_threshold": 1e-4}, "precision_threshold", ("None", "0.0001")),
    "type of L": (A, {"dtype": "float32"}, "dtype", ("float64", "float32")),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_differs_is_refused_by_name_and_nothing_is_lost(what, tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprint, "sampled_blocks", lambda n: [(0, 0), (64, 0), (n - 64, n - 64)])
    a, options, name, values = OTHERS[what]
    partial = begun(tmp_path / "L", calls=48)
    kept = partial.read_bytes()
    with pytest.raises(oc.errors.CheckpointError, match="start afresh with replace=True") as caught:
        oc.cholesky(a, checkpoint=tmp_path / "L", **{**PLAIN, **options})
    assert name in caught.value.differences and (values is None or caught.value.differences[name] == values)
    assert caught.value.path == str(partial) and partial.read_bytes() == kept
    with oc.cholesky(a, checkpoint=tmp_path / "L", replace=True, **{**PLAIN, **options}) as factor:
        assert factor.report.resumed == 0
    assert not partial.exists()


def test_other_arithmetic_is_refused_by_name(tmp_path, monkeypatch):
    """As after an update of the BLAS library: the factor would be partly of one, partly of the other."""
    begun(tmp_path / "L")
    facts = key.kernel_facts
    monkeypatch.setattr(key, "kernel_facts", lambda *which: replace(facts(*which), library="another library"))
    with pytest.raises(oc.errors.CheckpointError, match=r"library .* there, another library here"):
        oc.cholesky(A, checkpoint=tmp_path / "L", **PLAIN)


@pytest.mark.parametrize("n", [1, 5, 64, 65, 127, 128, 129, 1000, 10**6])
def test_the_sample_is_of_the_lower_triangle_with_both_ends(n):
    places, order = sampled_blocks(n), min(64, n)
    assert places[0] == (0, 0) and (n - order, n - order) in places and len(places) <= 16
    for row, col in places:
        assert col >= 0 and row + order <= n and (row == col or row >= col + order)


def test_a_device_makes_the_blocks_that_the_host_would(tmp_path):
    """The way that a function for GPUs takes, on a device of the host."""
    source, places = stop_at(A, 0), sampled_blocks(N)
    made = zip(_blocks_of_device(source, FP64, "host:0", places), _blocks_of(source, FP64, places), strict=True)
    assert [np.array_equal(one, other) for one, other in made] == [True] * len(places)


def test_a_tile_function_is_known_again_by_what_it_fills(tmp_path):
    begun(tmp_path / "L")
    with pytest.raises(oc.errors.CheckpointError, match="entries of A"):
        oc.cholesky(stop_at(A + 1e-3 * np.eye(N), 0), checkpoint=tmp_path / "L", **PLAIN)
    oc.cholesky(stop_at(A, 0), checkpoint=tmp_path / "L", **PLAIN).close()


def test_a_call_without_a_checkpoint_does_not_replace_one(tmp_path):
    partial = begun(tmp_path / "L")
    with pytest.raises(oc.errors.OutputError, match="is a checkpoint, which would be lost"):
        oc.cholesky(A, store=tmp_path / "L", **PLAIN)
    assert partial.exists()
    oc.cholesky(A, store=tmp_path / "L", replace=True, **PLAIN).close()
    assert not partial.exists()


# damage


def states(path: Path):
    """Which tiles of a checkpoint are good, bad and missing."""
    with closing(FileStore.open_unfinished(path)) as store:
        return store.verify_tiles()


def damage(partial: Path, tile: tuple[int, int]) -> None:
    """Garbage in half of a tile, as a power cut may leave it."""
    with closing(FileStore.open_unfinished(partial.with_name("L"))) as store:
        start = store.layout.offset(*tile)
    with partial.open("r+b") as file:
        file.seek(start)
        file.write(b"\xa5" * (4 * NB * NB))


def test_torn_tiles_are_computed_again(tmp_path):
    right, partial = bits(oc.cholesky(A, **PLAIN)), begun(tmp_path / "L")
    damage(partial, (0, 0))
    damage(partial, (3, 1))
    found = states(tmp_path / "L")
    assert found.bad == {(0, 0), (3, 1)}
    with oc.cholesky(A, checkpoint=tmp_path / "L", **PLAIN) as factor:
        assert factor.report.resumed == len(found.good) and bits(factor) == right


@pytest.mark.parametrize("left", [0.0, 1e-3, 0.3, 0.7])
def test_a_truncated_file_is_gone_on_from_as_far_as_it_goes(left, tmp_path):
    right, partial = bits(oc.cholesky(A, **PLAIN)), begun(tmp_path / "L")
    os.truncate(partial, int(left * partial.stat().st_size))
    try:
        found = bits(oc.cholesky(A, checkpoint=tmp_path / "L", **PLAIN))
    except oc.errors.DamagedFileError as error:
        assert left < 0.01 and "L.partial" in str(error)
        found = bits(oc.cholesky(A, checkpoint=tmp_path / "L", replace=True, **PLAIN))
    assert found == right


def test_pivots_that_nobody_has_looked_at_are_not_gone_on_from(tmp_path):
    """A run is killed between writing a pivot's tile and reading its flag: the next one must meet that pivot again."""
    grid = TileGrid(64, NB)
    store = FileStore.create(tmp_path / "L", grid, checkpoint={})
    store.keep_unfinished()
    for tile in grid.tiles():
        store.write(tile, np.ones(grid.shape(*tile)))
    store.confirm((1, 1))
    store.flush_index()
    assert store.n_written == 2
    np.testing.assert_array_equal(read(store, (0, 0)), 1.0)  # the run itself reads it
    store.close()
    assert states(tmp_path / "L").missing == {(0, 0)}
    later = FileStore.open_unfinished(tmp_path / "L")
    later.keep_unfinished()
    later.confirm((0, 0))  # before it is written: flags and tiles come on two threads
    later.write((0, 0), np.ones((NB, NB)))
    later.close()
    assert not states(tmp_path / "L").missing


def test_what_was_written_since_a_device_failed_is_not_gone_on_from(tmp_path, monkeypatch):
    """As on several GPUs: one cannot read a tile, and others use what it makes of its memory before they hear of that."""
    monkeypatch.setattr(HostDevice, "failed_at", 0.0)  # before the run
    begun(tmp_path / "L")
    assert not states(tmp_path / "L").good


def test_tiles_of_the_last_moments_are_unwritten(tmp_path):
    grid = TileGrid(96, NB)
    store = FileStore.create(tmp_path / "L", grid, checkpoint={})
    store.keep_unfinished()
    for tile in [(1, 0), (2, 0)]:
        store.write(tile, np.ones(grid.shape(*tile)))
    since = time.perf_counter()
    store.write((2, 1), np.ones(grid.shape(2, 1)))
    store.distrust(since)
    store.close()
    assert states(tmp_path / "L").good == {(1, 0), (2, 0)}


def read(store: FileStore, index: tuple[int, int]):
    """A tile."""
    store.read(index, tile := np.empty(store.grid.shape(*index)))
    return tile


# two at once, verdicts, interrupts


def test_two_runs_do_not_share_a_checkpoint(tmp_path):
    refusals = []

    def second() -> None:
        with pytest.raises(oc.errors.TierError, match="another run is writing this file") as caught:
            oc.cholesky(A, checkpoint=tmp_path / "L", **PLAIN)
        refusals.append(caught.value)

    right = bits(oc.cholesky(A, **PLAIN))
    first = oc.cholesky(stop_at(A, 60, second), checkpoint=tmp_path / "L", **PLAIN)
    assert bits(first) == right and len(refusals) == 1


@pytest.mark.parametrize("engine", ["native", "residue", "mixed"])
def test_nothing_is_kept_after_a_verdict_on_the_matrix(engine, tmp_path):
    options = ENGINES[engine][1]
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        oc.cholesky(A - 0.9 * np.diag(np.arange(N) == 200), checkpoint=tmp_path / "L", **options)
    assert caught.value.minor == 201 and os.listdir(tmp_path) == []


def test_one_interrupt_lets_run_what_is_enqueued_and_says_how_to_go_on(tmp_path):
    right = bits(oc.cholesky(A, **PLAIN))
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt) as caught:
        oc.cholesky(stop_at(A, 60, lambda: os.kill(os.getpid(), signal.SIGINT)), checkpoint=tmp_path / "L", **PLAIN)
    assert "the same call goes on from it" in caught.value.__notes__[0]
    assert set(threading.enumerate()) == before
    with oc.cholesky(A, checkpoint=tmp_path / "L", **PLAIN) as factor:
        assert factor.report.resumed > 5 and bits(factor) == right


def test_a_second_interrupt_ends_at_once(tmp_path):
    """The first waits for what is enqueued, here for a tile function that does not return."""
    gate = threading.Event()

    def block() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        gate.wait(60)

    right = bits(oc.cholesky(A, **PLAIN))
    with pytest.raises(KeyboardInterrupt):
        oc.cholesky(stop_at(A, 60, block), checkpoint=tmp_path / "L", **PLAIN)
    assert not gate.is_set() and (tmp_path / "L.partial").exists()
    gate.set()
    assert bits(oc.cholesky(A, checkpoint=tmp_path / "L", **PLAIN)) == right


@pytest.mark.parametrize(("number", "status", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")])
def test_the_command_goes_on_after_a_signal(number, status, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", A)
    words = [
        "factor",
        "a.npy",
        "--store",
        "L",
        "--tile-size",
        "32",
        "--memory-budget",
        "200 kB",
        "--quiet",
        "--devices",
        "host:0",
    ]
    assert main([*words, "--resume"]) == 2
    assert "there is no checkpoint L.partial to go on from; give --checkpoint to begin" in capsys.readouterr().err
    write, calls = FileStore.write, []

    def send(store, index, data):
        calls.append(index)
        if len(calls) == 30:
            os.kill(os.getpid(), number)
        write(store, index, data)

    monkeypatch.setattr(FileStore, "write", send)
    assert main([*words, "--checkpoint"]) == status
    told = capsys.readouterr().err
    assert told.startswith(f"ooc-chol: {said}; ") and told.endswith("the same call goes on from it\n")
    assert sorted(os.listdir()) == ["L.partial", "a.npy"]
    assert main([*words, "--resume", "--tile-size", "64"]) == 2
    assert "--tile-size (32 there, 64 here)" in (told := capsys.readouterr().err) and "start afresh with --force" in told
    assert main([*words, "--resume"]) == 0 and sorted(os.listdir()) == ["L", "a.npy"]
    with oc.load("L") as factor, oc.cholesky(A, **PLAIN) as right:
        np.testing.assert_array_equal(np.asarray(factor), np.asarray(right))


# options


@pytest.mark.parametrize(
    ("options", "expected", "text"),
    [
        ({"checkpoint": True}, ValueError, "give store=path, or checkpoint=path"),
        ({"checkpoint": 3}, TypeError, "give the path of a file"),
        ({"checkpoint": "c", "store": "d"}, ValueError, "two files for one L"),
        ({"checkpoint": "c", "store": oc.HostMemory()}, ValueError, "leave store out"),
        ({"checkpoint": "c", "overwrite": True}, ValueError, "leave it or checkpoint out"),
        ({"checkpoint": "c", "policy": "async"}, ValueError, "half-updated tiles"),
        ({"checkpoint": "c.npy"}, ValueError, "not written as .npy"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, expected, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(expected, match=text):
        oc.cholesky(A.copy(), **options)
    assert os.listdir() == []


def test_no_checkpoint_is_none_or_false(tmp_path):
    with pytest.raises(StopError):
        oc.cholesky(stop_at(A, 30), store=tmp_path / "L", checkpoint=False, **PLAIN)
    assert os.listdir(tmp_path) == []


def test_a_file_of_a_run_that_was_killed_before_it_wrote_is_begun_anew(tmp_path):
    (tmp_path / "L.ooc.partial").touch()
    with oc.cholesky(A, **PLAIN, checkpoint=tmp_path / "L.ooc") as factor:
        assert factor.report.resumed == 0
    assert [path.name for path in tmp_path.iterdir()] == ["L.ooc"]


@pytest.mark.parametrize("checkpoint", ["L", True, None])
def test_what_is_no_store_is_refused_whatever_the_checkpoint(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match="store is a dict; give the path of a file, or a HostMemory"):
        oc.cholesky(np.eye(4), store={}, checkpoint=checkpoint)
    assert not list(tmp_path.iterdir())
