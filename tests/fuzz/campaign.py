"""Many cases in processes that are watched: one that dies or stands still is a finding, and the next begins behind it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: Seconds until a process has imported everything and made a good file.
_START_SECONDS = 90.0


@dataclass
class Findings:
    """What came of one reader's cases."""

    reader: str
    cases: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    problems: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    slowest: dict[str, Any] = field(default_factory=dict)
    largest: dict[str, Any] = field(default_factory=dict)

    def add(self, begun: dict[str, Any], ended: dict[str, Any]) -> None:
        """Count a case."""
        case = {"reader": self.reader, "number": begun["begin"], "case": begun["case"]}
        self.cases += 1
        self.outcomes[ended["outcome"]] = self.outcomes.get(ended["outcome"], 0) + 1
        if ended["problem"]:
            self.problems.append({**case, "problem": ended["problem"], "detail": ended.get("detail", "")})
        for name, kept in (("seconds", self.slowest), ("peak", self.largest)):
            if ended.get(name, 0) > kept.get(name, 0):
                kept.clear()
                kept.update({**case, name: ended[name]})


class _Process:
    """One worker, whose lines are read with a limit of time."""

    def __init__(self, reader: str, seed: int, first: int, stop: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", reader, str(seed), str(first), str(stop)],
            stdout=subprocess.PIPE, stderr=self._errors, cwd=ROOT, env=_environment(), text=True,
        )  # fmt: skip
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def line(self, seconds: float) -> dict[str, Any] | None:
        """The next line; None where the process ended. ``TimeoutError`` where nothing comes."""
        try:
            line = self._lines.get(timeout=max(0.01, seconds))
        except queue.Empty:
            raise TimeoutError from None
        return None if line is None else json.loads(line)

    def end(self) -> str:
        """End it, and say how it ended and the last of what it said."""
        if self._errors.closed:
            return ""
        self._process.kill()
        code = self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace")
        self._errors.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return f"status {code}: {text[-1500:]}"


def _environment() -> dict[str, str]:
    cache = tempfile.gettempdir() + "/fuzz-no-cache"
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    return {**os.environ, "OOC_CHOL_CACHE": cache, "PYTHONHASHSEED": "0", **threads}


def fuzz(reader: str, seed: int, cases: int, *, seconds: float, case_seconds: float = 30.0) -> Findings:
    """Run all fixed cases of a reader and ``cases`` by chance, or as many as ``seconds`` allow.

    A case that takes longer than ``case_seconds`` stands still.
    """
    found, first, ends_at = Findings(reader), 0, time.monotonic() + seconds
    began = time.monotonic()
    while first >= 0 and time.monotonic() < ends_at:
        first = _until_broken(found, seed, first, cases, ends_at, case_seconds)
    found.seconds = time.monotonic() - began
    return found


def _until_broken(found: Findings, seed: int, first: int, cases: int, ends_at: float, case_seconds: float) -> int:
    """Run a process until it ends; returns the case that another is to begin with, or -1."""
    process, begun, patience = _Process(found.reader, seed, first, cases), None, _START_SECONDS
    try:
        while True:
            line = process.line(patience)
            patience = case_seconds
            if line is None or "broken" in line:
                return _died(found, begun, process, line)
            if "done" in line:
                return -1
            if "begin" in line:
                begun = line
            else:
                assert begun is not None
                found.add(begun, line)
                begun = None
                if time.monotonic() > ends_at:
                    return -1
    except TimeoutError:
        problem = {"outcome": "hang", "problem": f"no answer within {patience:g} seconds"}
        found.add(begun or {"begin": first, "case": "begin of the process"}, problem)
        return -1 if begun is None else begun["begin"] + 1
    finally:
        process.end()


def _died(found: Findings, begun: dict[str, Any] | None, process: _Process, line: dict[str, Any] | None) -> int:
    """Note a process that ended by itself."""
    text = process.end() if line is None else line["broken"]
    found.add(begun or {"begin": -1, "case": "no case"}, {"outcome": "crash", "problem": "the process died", "detail": text})
    return -1 if begun is None else begun["begin"] + 1
