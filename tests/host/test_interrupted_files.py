"""Ctrl-C at every moment of making a file: nothing unfinished is left, and what was there before survives until it is replaced.

Two ways to interrupt the n-th moment, for all n. *At a line*: the signal is handled as that line begins. *As a signal comes*: it
is noted before a bytecode, and the interpreter handles it where it looks for signals next, as those of the system are; that may
be in a module of the standard library, between two lines of ours.
"""

from __future__ import annotations

import _thread
import dis
import gc
import os
import signal
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.inside.cli import SignalInterrupt, signals_as_interrupts
from tests.inside.files import HeldInterrupts

pytestmark = pytest.mark.usefixtures("no_hang")

ROOT = os.path.dirname(oc.__file__) + os.sep
#: Where files are made, and passed on to who removes them.
MODULES = (
    "process/interrupts",
    "files/outputs",
    "files/unfinished",
    "memory/block_files",
    "dense/stores/file",
    "dense/store_opening",
)
MODULES += ("dense/keeping", "dense/disk_tier", "api/cholesky", "dense/factoring", "dense/factor/saving", "dense/factor/updating")
MODULES += ("dense/factor/factor", "sparse/pack", "calls/checkpoint", "eigen/checkpoint", "tensors/checkpoint")
FILES = frozenset(f"{ROOT}{name}.py" for name in MODULES)

N = 12
A = np.exp(-np.abs(np.subtract.outer(np.arange(N), np.arange(N))) / 4.0)
ROWS = sparse.csr_array(np.tril(A))


#: Bytecodes that look for signals, and those by which other code goes on, which does.
LOOKING = ("CALL", "RESUME", "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "BEFORE_WITH", "RETURN", "YIELD")

#: Functions that make a file, pass it on, or give it its name: there every place counts. Elsewhere one of so many does.
CREATING = {"create", "create_locked", "create_new", "_create_store", "own_store", "store_for", "_created", "save_tiles"}
CREATING |= {"packed_in_file", "complete", "_complete", "_remove", "__enter__", "__exit__", "_put_back", "_set_handlers"}
CREATING |= {"_is_held", "take", "check", "_hold"}
STRIDE = 40


class Moments:
    """Counts lines, or bytecodes, of the modules above on this thread, and interrupts at one of them."""

    def __init__(self, at: int, *, lines: bool, number: int = signal.SIGINT) -> None:
        self.at, self.lines, self.count, self.place = at, lines, 0, ""
        self.passed: set[tuple[CodeType, int]] = set()
        # Looked up, it notes a signal. That is no call in Python, so that nobody looks for signals before the traced code does.
        self.noted = defaultdict(lambda: None) if lines else defaultdict(PENDING[number])
        self.number = number

    def __enter__(self) -> Moments:
        sys.settrace(self._begun)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _begun(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in FILES or is_finalizing(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = not self.lines, self.lines
        return self._at_line if self.lines else self._at_bytecode

    def _at_line(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line" and self._is_now(frame, frame.f_lineno):
            signal.raise_signal(self.number)
        return self._at_line

    def _at_bytecode(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "opcode" and frame.f_lasti in looks(frame.f_code) and self._is_now(frame, frame.f_lasti):
            sys.settrace(None)  # a function in Python between here and there would look for signals, too
            self.noted[self.at]
        return self._at_bytecode

    def _is_now(self, frame: FrameType, place: int) -> bool:
        """Whether this moment is the one; a place counts when it is first passed, outside of ``CREATING`` some do."""
        code = frame.f_code
        if (code, place) in self.passed:
            return False
        self.passed.add((code, place))
        if code.co_name not in CREATING and len(self.passed) % STRIDE:
            return False
        self.count += 1
        if self.count != self.at:
            return False
        self.place = f"{code.co_filename.removeprefix(ROOT)}:{frame.f_lineno} in {code.co_name}"
        return True


@cache
def looks(code: CodeType) -> frozenset[int]:
    """Offsets of the bytecodes at which a signal makes a difference: after them, or in what they call, it is looked for."""
    return frozenset(each.offset for each in dis.get_instructions(code) if each.opname.startswith(LOOKING))


#: What notes each signal, as the system does: functions in C, without a look for signals behind them.
PENDING = {number: partial(_thread.interrupt_main, number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


def is_finalizing(frame: FrameType | None) -> bool:
    """Whether Python collects an object just now: it shows an interrupt that comes then, and goes on."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


@cache
def made() -> oc.CholeskyFactor:
    """L of A in memory."""
    return oc.cholesky(A, tile_size=6, devices="host:0", memory_budget="1 MB")


def factor(path: Path, **options: Any) -> None:
    """L of A in a file."""
    oc.cholesky(A, plan=made().report.plan, store=path, **options).close()


def save(path: Path) -> None:
    """L of A, saved to a file."""
    made().save(path)


def update(path: Path) -> None:
    """An updated L in a file."""
    made().update(np.ones(N), store=path).close()


def pack(path: Path) -> None:
    """A packed matrix."""
    oc.block_csr(ROWS, store=path).close()


def write(path: Path) -> None:
    """A file of any other kind."""
    with tb.output_file(path, replace=True) as part:
        part.write_bytes(b"new")


#: What is done, the name of the file, and what is there before.
CALLS: dict[str, tuple[Callable[[Path], None], str, Callable[[Path], None] | None]] = {
    "cholesky": (factor, "L.ooc", None),
    "cholesky in place of a factor": (
        partial(factor, replace=True),
        "L.ooc",
        lambda path: oc.cholesky(np.eye(5), store=path).close(),
    ),
    "save": (save, "L.ooc", None),
    "save an array": (save, "L.npy", None),
    "update": (update, "L.ooc", None),
    "block_csr": (pack, "a.oocsr", None),
    "block_csr in place of a file": (pack, "a.oocsr", lambda path: oc.block_csr(ROWS.T, store=path).close()),
    "output_file": (write, "words", lambda path: path.write_bytes(b"old") and None),
}


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def restored(folder: Path, before: dict[str, bytes]) -> None:
    """Let a folder hold these files and no others."""
    for each in folder.iterdir():
        each.unlink()
    for name, data in before.items():
        (folder / name).write_bytes(data)


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody waits for the disk: what a power cut takes is not asked here."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of a factor that nobody got: the interrupt came as it was returned
        yield
        gc.collect()  # what interrupts left to the collector, it shall not tell of in another test


def interrupted(call: Callable[[Path], None], path: Path, moments: Moments) -> bool:
    """Whether a call was."""
    try:
        with moments:
            call(path)
    except KeyboardInterrupt:
        return True
    return False


# Python shows an interrupt that comes while it collects a factor, and goes on: the call is completed then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("lines", [True, False], ids=["at a line", "as a signal comes"])
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_moment_leaves_no_unfinished_file(name, lines, tmp_path, quick_disk):
    call, file, prepare = CALLS[name]
    path = tmp_path / file
    if prepare is not None:
        prepare(path)
    before = content(tmp_path)
    call(path)
    right = content(tmp_path)
    assert right != before and set(right) == {file}
    restored(tmp_path, before)
    all_of_them = Moments(0, lines=lines)
    assert not interrupted(call, path, all_of_them) and content(tmp_path) == right
    wrong = []
    for at in range(1, all_of_them.count + 1):
        restored(tmp_path, before)
        was_interrupted = interrupted(call, path, moments := Moments(at, lines=lines))
        if (found := content(tmp_path)) != right and not (was_interrupted and found == before):
            wrong.append(f"{moments.place}: {'interrupted' if was_interrupted else 'not interrupted'}, {sorted(found)}")
    assert not wrong, "\n".join(wrong)


# what holds them


@pytest.fixture
def handled() -> Iterator[dict[int, Any]]:
    """Interrupts for all signals that end a process; their handlers."""
    with signals_as_interrupts():
        yield (before := handlers())
        assert handlers() == before


def handlers() -> dict[int, Any]:
    """What each signal does."""
    return {number: signal.getsignal(number) for number in PENDING}


@pytest.mark.parametrize("lines", [True, False], ids=["at a line", "as a signal comes"])
@pytest.mark.parametrize("number", PENDING, ids=lambda number: number.name)
def test_handlers_are_put_back_wherever_a_signal_comes(handled, number, lines):
    """Also while they are set, and put back; and the signal is not lost."""

    def hold(_: object = None) -> None:
        with HeldInterrupts(), HeldInterrupts():
            pass

    all_of_them = Moments(0, lines=lines)
    assert not interrupted(hold, Path(), all_of_them)
    assert all_of_them.count > 20
    for at in range(1, all_of_them.count + 1):
        assert interrupted(hold, Path(), moments := Moments(at, lines=lines, number=number)), moments.place
        assert handlers() == handled, moments.place


def test_the_first_signal_waits_for_the_end_of_the_outermost_block_and_the_second_one_does_not(handled):
    done = []
    with pytest.raises(SignalInterrupt) as raised, HeldInterrupts():
        with HeldInterrupts() as inner:
            signal.raise_signal(signal.SIGTERM)
            done.append("inner")
        assert inner.take() is None
        done.append("outer")
    assert done == ["inner", "outer"] and raised.value.number is signal.SIGTERM
    with pytest.raises(KeyboardInterrupt), HeldInterrupts(), HeldInterrupts():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        done.append("never")
    assert "never" not in done


def test_a_signal_that_waits_is_taken_once(handled):
    with HeldInterrupts() as held:
        assert held.take() is None
        signal.raise_signal(signal.SIGINT)
        assert type(held.take()) is KeyboardInterrupt and held.take() is None
        held.check()


def test_an_error_of_the_block_is_what_is_seen(handled):
    with pytest.raises(ValueError, match="first"), HeldInterrupts():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("first")
