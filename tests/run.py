"""Runs the tests of a tier in a few processes of pytest, each of which collects its own files alone.

``python -m tests.run --tier commit`` is what ``make test`` does. Files are dealt out by the seconds that each took when it was
last recorded (``tests/seconds.json``): chunks of files wait in a line, the longest first, for the next process that is free.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.groups import group_of
from tests.kinds import SECONDS, TIERS, count_lines

ROOT = Path(__file__).resolve().parents[1]
#: Seconds of a file that no run has recorded.
UNKNOWN = 2.0
#: Chunks for each process: more share the work better, each collects and imports anew.
CHUNKS = 3
#: A file is named when it takes more than this many times its recorded seconds, and some more.
OVER, SLACK = 2.0, 2.0


@dataclass
class Told:
    """Counts and seconds of runs of pytest, summed."""

    outcomes: Counter[str] = field(default_factory=Counter)
    deselected: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    cases: dict[str, float] = field(default_factory=dict)

    def add(self, facts: dict[str, Any]) -> None:
        """Add one run."""
        for name in ("outcomes", "deselected", "left_out"):
            getattr(self, name).update(facts[name])
        self.seconds |= facts["seconds"]
        self.cases |= facts["cases"]


def files_in(places: Iterable[str]) -> list[str]:
    """Files of tests in these folders, relative to the root; the package itself, whose examples are tests, is one."""
    found = []
    for place in places:
        path = ROOT / place
        if path.is_relative_to(ROOT / "tests") and path.is_dir():
            found += [each.relative_to(ROOT).as_posix() for each in sorted(path.rglob("test_*.py"))]
        else:
            found.append(path.relative_to(ROOT).as_posix())
    return found


def chunks_of(files: Sequence[str], seconds: dict[str, float], count: int) -> list[list[str]]:
    """At most about ``count`` lists of files, the longest first; what must not run beside each other is in one of them."""
    groups: dict[str, list[str]] = {}
    for file in files:
        groups.setdefault(group_of(file), []).append(file)
    costs = {name: sum(seconds.get(file, UNKNOWN) for file in group) for name, group in groups.items()}
    share = sum(costs.values()) / count
    chunks, costs_of, open_one = [], [], None
    for name, group in groups.items():  # in the order of folders: neighbours import the same
        if costs[name] >= share / 2 or open_one is None or costs_of[open_one] + costs[name] > share:
            chunks.append(list(group))
            costs_of.append(costs[name])
            open_one = open_one if costs[name] >= share / 2 else len(chunks) - 1
        else:
            chunks[open_one] += group
            costs_of[open_one] += costs[name]
    return [chunk for _, chunk in sorted(zip(costs_of, chunks, strict=True), key=lambda each: -each[0])]


def environment() -> dict[str, str]:
    """One thread of BLAS each, unless the caller says otherwise; and bytecode is kept, or all compile every module anew."""
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return one_thread | {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run_chunk(chunk: Sequence[str], options: Sequence[str], folder: Path, number: int) -> tuple[int, str, dict[str, Any] | None]:
    """Exit status of pytest over these files, what it printed, and what it told."""
    told = folder / f"{number}.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--told={told}", *options, *chunk]
    done = subprocess.run(command, cwd=ROOT, env=environment(), text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)  # fmt: skip
    facts = json.loads(told.read_text(encoding="utf-8")) if told.exists() else None
    return done.returncode, done.stdout, facts


def over_budget(seconds: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Lines on files that took far more than was recorded."""
    return [
        f"over its budget: {file} took {took:.1f} s of processor, {recorded[file]:.1f} are recorded"
        for file, took in sorted(seconds.items())
        if file in recorded and took > OVER * recorded[file] + SLACK
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Run, and print what a person wants to know in the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument("--tier", choices=TIERS, default="all")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--record", action="store_true", help="write the seconds of each file, and of cases, to tests/seconds.json"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write seconds and counts to this file")
    parser.add_argument("places", nargs="*", default=["ooc_chol", "tests"], help="files and folders of tests")
    given, options = parser.parse_known_args(words)
    files, recorded = files_in(given.places), json.loads(SECONDS.read_text(encoding="utf-8"))
    chunks = chunks_of(files, recorded[given.tier], CHUNKS * given.processes)
    told, failed, began = Told(), False, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.processes) as pool:
        options = [f"--tier={given.tier}", *options]
        runs = {pool.submit(run_chunk, each, options, Path(folder), number): each for number, each in enumerate(chunks)}
        for done, run in enumerate(as_completed(runs), 1):
            status, output, facts = run.result()
            is_good = status in (0, 5) and facts is not None  # 5: no test of these files is of the tier
            failed |= not is_good
            if facts is not None:
                told.add(facts)
            if not is_good:
                print(output, flush=True)
            print(f"[{done}/{len(chunks)}] {last_line(output)}: {runs[run][0]}{' ...' if len(runs[run]) > 1 else ''}", flush=True)
    for line in (*over_budget(told.seconds, recorded[given.tier]), *count_lines(told.deselected, told.left_out)):
        print(line)
    if given.record:
        recorded[given.tier] = {file: round(took, 1) for file, took in sorted(told.seconds.items())}
        recorded["cases"] = {test: round(took, 3) for test, took in sorted(told.cases.items())}
        SECONDS.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    took, processor = time.monotonic() - began, sum(os.times()[2:4])
    if given.json is not None:
        facts = {"tier": given.tier, "processes": given.processes, "seconds": took, "processor_seconds": processor}
        counted = {"outcomes": told.outcomes, "deselected": told.deselected, "left_out": told.left_out}
        given.json.write_text(json.dumps(facts | counted, indent=1) + "\n", encoding="utf-8")
    counts = ", ".join(
        f"{told.outcomes[name]} {name}" for name in ("failed", "error", "passed", "deselected") if told.outcomes[name]
    )
    print(f"{counts or 'no tests ran'} in {took:.2f}s ({processor:.0f} s of processor, {given.processes} processes)")
    return 1 if failed or not told.outcomes["passed"] else 0


def last_line(output: str) -> str:
    """The line in which pytest counts."""
    return next((line for line in reversed(output.splitlines()) if " in " in line), "no counts").strip("= ")


if __name__ == "__main__":
    sys.exit(main())
