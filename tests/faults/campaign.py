"""Run a scenario once for every call that can fail, and say what did not hold."""

from __future__ import annotations

import _thread
import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import ooc_chol as oc
from tests.faults.devices import WrappedKind
from tests.faults.injector import Injector, MakeError
from tests.faults.scenarios import Folder, Scenario
from tests.inside.dense import FileStore
from tests.inside.kernels import current_threads
from tests.inside.memory import RELEASER

#: Seconds that threads which were told to end may take.
_SETTLING_SECONDS = 1.0


@dataclass(frozen=True)
class Fault:
    """Which calls fail, how, and what must come of it."""

    kind: str
    make: MakeError
    goes_on: bool = False  #: Whether every later call of the kind fails, too
    error: type[BaseException] | tuple[type[BaseException], ...] = oc.OocCholError  #: What the user is to meet
    says: str = ""  #: What its text is to have in it, where ``{folder}`` is that of the files
    may_pass: bool = False  #: Whether the call may also succeed


@dataclass
class Result:
    """How many calls were made to fail, and what did not hold at which."""

    cases: int = 0
    wrong: list[str] = field(default_factory=list)


def interrupt() -> BaseException | None:
    """Ctrl-C at this call: raised on the main thread, a signal for it from any other."""
    if threading.current_thread() is threading.main_thread():
        return KeyboardInterrupt()
    _thread.interrupt_main()
    return None


class Campaign:
    """One scenario, its files, and what it returns when nothing fails."""

    def __init__(self, scenario: Scenario, folder: Folder, injector: Injector, kind: WrappedKind) -> None:
        self.scenario, self.folder, self.injector, self._kind = scenario, folder, injector, kind
        injector.disarm()
        self.before = folder.contents()
        scenario.run(folder)  # the first one imports what it needs
        self._restore()
        injector.disarm()
        self.right = scenario.run(folder)
        self.counts = dict(injector.counts)
        self.after = folder.contents()
        self._restore()
        RELEASER.release_now()
        self._settle({})
        self.state = self._state()

    def _restore(self) -> None:
        """Put the files back that the scenario has changed."""
        now = self.folder.contents()
        for name in now.keys() - self.before.keys():
            (self.folder.root / name).unlink()
        for name, content in self.before.items():
            if now.get(name) != content:
                (self.folder.root / name).write_bytes(content)

    def run(self, fault: Fault, most: int | None = None) -> Result:
        """Let each call of the kind fail in turn, or so many of them, the first and the last among them.

        The same call again, which must succeed, is made behind every third, and behind the last.
        """
        result, count = Result(), self.counts.get(fault.kind, 0)
        chosen = range(1, count + 1)
        if most is not None and most < count:
            chosen = sorted({1 + round(number * (count - 1) / (most - 1)) for number in range(most)})
        for at in chosen:
            result.cases += 1
            if why := self._case(fault, at, again=result.cases % 3 == 0 or at == count):
                result.wrong.append(f"{self.scenario.name}: {fault.kind} {at} of {count}: {why}")
        return result

    def _case(self, fault: Fault, at: int, *, again: bool) -> str:
        """What did not hold when call ``at`` failed; empty where all did."""
        error: BaseException | None = None
        with unseen_errors() as unseen:
            self.injector.arm(fault.kind, at, fault.make, goes_on=fault.goes_on)
            try:
                got = self.scenario.run(self.folder)
                time.sleep(0)  # an interrupt from another thread is met here at the latest
            except BaseException as caught:
                error = caught.with_traceback(None)
            has_failed, is_begun = self.injector.has_failed, self.injector.before["file:grow"] > 0
            self.injector.disarm()
        why = [f"unseen {each}" for each in unseen]
        if error is not None:
            why += self._judged(fault, error)
        elif got != self.right:
            why.append("other bits")
        elif has_failed and not fault.may_pass:
            why.append("no error")
        why += self._left(error)
        if error is not None and self.scenario.is_kept:
            why += self._gone_on(is_begun)
        self._restore()
        if again:
            why += self._next()
        return "; ".join(why)

    def _judged(self, fault: Fault, error: BaseException) -> list[str]:
        """What is wrong with the error."""
        text = str(error)
        if not isinstance(error, fault.error):
            return [f"raised {type(error).__module__}.{type(error).__name__}: {text[:300]}"]
        says = fault.says.format(folder=self.folder.root)
        return [] if says in text else [f"{type(error).__name__} does not name {says!r}: {text[:300]}"]

    def _left(self, error: BaseException | None) -> list[str]:
        """What is left behind."""
        RELEASER.release_now()
        state = self._settle(self.state)
        left = [f"{what} {now!r}, not {self.state[what]!r}" for what, now in state.items() if now != self.state[what]]
        if self._kind.locks.locked:
            left.append(f"{len(self._kind.locks.locked)} pieces page-locked")
            self._kind.locks.locked.clear()
        files = self.folder.contents()
        if self.scenario.is_kept:
            files.pop(f"{self.scenario.makes}.partial", None)  # which the next call says whether it is right
        if error is None and files == self.after:
            return left
        # Once the file has its name the call may still fail, in what is done with the factor: it is the old one or the new.
        if files != self.before and not (self.scenario.makes and (files == self.after or self._is_beside(files, error))):
            changed = {name for name in files.keys() | self.before.keys() if files.get(name) != self.before.get(name)}
            left.append(f"files {sorted(changed)} changed")
        return left

    def _gone_on(self, is_begun: bool) -> list[str]:
        """What is wrong with the unfinished file of a call that had begun one, and with the same call, which goes on from it."""
        files, there = self.folder.contents(), 0
        if f"{self.scenario.makes}.partial" in files:
            with suppress(FileNotFoundError), closing(FileStore.open_unfinished(self.folder.root / self.scenario.makes)) as store:
                there = len(store.verify_tiles().good)
        elif is_begun and files == self.before:
            return ["the unfinished file is gone"]
        self.injector.disarm()
        why = self._next()
        if there and not self.injector.counts["file:write"] < self.counts["file:write"]:
            why.append(f"the next call did not go on from {there} tiles")
        return why

    def _is_beside(self, files: dict[str, bytes], error: BaseException | None) -> bool:
        """Whether all that is new is the finished factor under a name that the error says: its own may be a stranger's by now."""
        new = files.keys() - self.before.keys()
        if len(new) != 1 or str(self.folder.root / (name := next(iter(new)))) not in str(error):
            return False
        return files == {**self.before, name: self.after[self.scenario.makes]}

    def _settle(self, expected: dict[str, object]) -> dict[str, object]:
        """What there is once threads that were told to end have ended."""
        deadline = time.monotonic() + _SETTLING_SECONDS
        while (state := self._state()) != expected and time.monotonic() < deadline:
            if not expected and not state["threads"]:
                break
            time.sleep(0.001)
        return state

    def _state(self) -> dict[str, object]:
        return {
            "threads": sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("ooc_chol")),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "blas threads": current_threads(),
            "collector": gc.isenabled(),
        }

    def _next(self) -> list[str]:
        """What is wrong with the next call in this process."""
        try:
            got = self.scenario.run(self.folder)
        except Exception as error:
            return [f"the next call raised {type(error).__name__}: {str(error)[:200]}"]
        finally:
            self._restore()
        return [] if got == self.right else ["the next call has other bits"]


@contextmanager
def unseen_errors() -> Iterator[list[str]]:
    """Errors of threads and of finalizers, which nobody raises, and warnings of what was never closed."""
    seen: list[str] = []

    def note(what: str) -> Callable[[Any], None]:
        return lambda told: seen.append(f"{what}: {told.exc_value!r}")

    hooks = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = note("thread"), note("finalizer")  # type: ignore[assignment]
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", ResourceWarning)
            yield seen
        seen += [f"warning: {each.message}" for each in told]
    finally:
        threading.excepthook, sys.unraisablehook = hooks
