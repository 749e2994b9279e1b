"""Whole runs of a tier of tests, alone on the machine and beside busy loops: seconds, processor, and what failed.

    python benchmarks/tier_runs.py --tier commit --runs 5 --load 6

writes ``results/house/tests-commit.json``. Runs are in turn: one alone, one beside the load.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "house"


def measured(tier: str, processes: int, load: int, options: list[str]) -> dict[str, object]:
    """One run beside ``load`` processes that compute for ever."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        for _ in range(load):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(busy.kill)
        told = Path(folder) / "run.json"
        command = [
            sys.executable,
            "-m",
            "tests.run",
            "--tier",
            tier,
            "--processes",
            str(processes),
            "--json",
            str(told),
            *options,
        ]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        return {"load": load, "status": status, **json.loads(told.read_text(encoding="utf-8"))}


def main() -> None:
    """Run, and write the file after each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", default="commit")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--load", type=int, default=6, help="busy processes beside every second run; 0 leaves these out")
    parser.add_argument("--processes", type=int, default=(os.cpu_count() or 1) + 1)
    given, options = parser.parse_known_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    found: dict[str, object] = {"case": f"tests-{given.tier}", "commit": commit, "cores": os.cpu_count()}
    runs: list[dict[str, object]] = []
    for _ in range(given.runs):
        for load in dict.fromkeys((0, given.load)):
            runs.append(measured(given.tier, given.processes, load, options))
            RESULTS.mkdir(parents=True, exist_ok=True)
            text = json.dumps(found | {"runs": runs}, indent=1)
            (RESULTS / f"tests-{given.tier}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
