"""The process in which cases run: it says what it begins and what came of it, a line of JSON each, and a parent watches."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tests.fuzz import places
from tests.fuzz.corpus import SLACK_BYTES, Reader, named, random_of
from tests.fuzz.mutations import mutated
from tests.fuzz.verdicts import unwanted, where

#: Address space beside what is mapped when the cases begin: a case that asks for more meets ``MemoryError`` and not the machine.
_ROOM_BYTES = 2 << 30
_NOBODY = 65534


class Cases:
    """The cases of one reader, by number: places first, then attacks, then mutations without end."""

    def __init__(self, reader: Reader, folder: Path, seed: int) -> None:
        self.reader, self.seed = reader, seed
        self.path = folder / reader.file_name
        reader.make(self.path)
        self.good = self.path.read_bytes()
        self.fingerprint = reader.read(self.path) if reader.exact else None
        self._attacks = reader.attacks(self.good)
        self._names = [*(places.PLACES if reader.opens else ()), *self._attacks]

    @property
    def fixed(self) -> int:
        """How many cases are not by chance."""
        return len(self._names)

    def prepare(self, number: int) -> str:
        """Make the file of a case; returns the case in words."""
        for left in sorted(self.path.parent.glob(f"{self.path.name}*")):
            places.clear(left)
        if number >= self.fixed:
            self.path.write_bytes(mutated(random_of(self.seed, self.reader, number), self.good, self.reader.mutators))
            return f"mutation {number}"
        name = self._names[number]
        if name in places.PLACES:
            places.PLACES[name](self.path, self.good)
            return name
        attack = self._attacks[name]
        self.path.write_bytes(attack if isinstance(attack, bytes) else self.good)
        if callable(attack):
            attack(self.path)
        return name

    def run(self, number: int, case: str) -> dict[str, Any]:
        """Read the file, and judge what comes of it."""
        size = _size(self.path)
        before = _reset_peak()
        began = time.perf_counter()
        outcome, problem, detail = "read", "", ""
        try:
            with _as_nobody(case == "a file that may not be read"):
                found = self.reader.read(self.path)
            if self.reader.exact and found != self.fingerprint:
                problem = "another result, in silence"
        except MemoryError as error:
            outcome, detail = ("refused" if not unwanted(error) else "raw"), where(error)
            problem = unwanted(error)
        except Exception as error:
            problem = unwanted(error)
            outcome, detail = ("raw" if problem else "refused"), where(error)
        except BaseException as error:  # SystemExit and the like
            outcome, problem, detail = "raw", f"a {type(error).__name__}", where(error)
        seconds, peak = time.perf_counter() - began, _peak() - before
        if not problem and peak > SLACK_BYTES + self.reader.factor * size:
            problem = f"{peak >> 20} MiB of memory for a file of {size} bytes"
        return {"outcome": outcome, "problem": problem, "detail": detail, "seconds": seconds, "peak": peak}


def _size(path: Path) -> int:
    """Bytes that a file takes on its disk, which a sparse one has not."""
    try:
        status = os.stat(path)
    except OSError:
        return 0
    return min(status.st_size, 512 * status.st_blocks + 4096)


def _status(name: str) -> int:
    """A figure of this process in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    return 0


def _reset_peak() -> int:
    """Begin to measure the peak of memory anew; returns what is taken now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


@contextlib.contextmanager
def _as_nobody(wanted: bool) -> Iterator[None]:
    """Run without the rights of root, whom no mode of a file stops."""
    if not wanted or os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def limit_memory() -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = _status("VmSize") + _ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def work(name: str, seed: int, first: int, stop: int, out: TextIO) -> None:
    """Run the cases of one reader from ``first`` on, to ``stop`` or, with -1, to the last that is not by chance."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.chmod(folder, 0o755)
        cases = Cases(named(name), Path(folder), seed)
        limit_memory()
        number = first
        while stop < 0 or number < stop + cases.fixed:
            if stop < 0 and number >= cases.fixed:
                break
            case = cases.prepare(number)
            print(json.dumps({"begin": number, "case": case, "fixed": cases.fixed}), file=out, flush=True)
            print(json.dumps({"end": number, **cases.run(number, case)}), file=out, flush=True)
            number += 1
    print(json.dumps({"done": True}), file=out, flush=True)


def main() -> None:
    """As ``python -m tests.fuzz.worker READER SEED FIRST STOP``."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    name, *numbers = sys.argv[1:]
    seed, first, stop = map(int, numbers)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            work(name, seed, first, stop, out)
    except BaseException:
        print(json.dumps({"broken": traceback.format_exc()}), file=out, flush=True)
        raise


if __name__ == "__main__":
    main()
