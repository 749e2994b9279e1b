"""Whole runs of a tier of tests, alone on the machine and beside busy loops: seconds, processor, and what failed.

    python benchmarks/tier_runs.py --tier commit --runs 5 --loads 0 6

writes ``results/house/tests-commit.json``. Runs are in turn: one alone, one beside six loops. ``--append`` goes on with the file.
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
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 6], help="busy processes beside a run, in turn")
    parser.add_argument("--append", action="store_true", help="keep the runs that the file has")
    parser.add_argument("--processes", type=int, default=(os.cpu_count() or 1) + 1)
    given, options = parser.parse_known_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    file = RESULTS / f"tests-{given.tier}.json"
    found: dict[str, object] = {"case": f"tests-{given.tier}", "cores": os.cpu_count()}
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"] if given.append and file.exists() else []
    for _ in range(given.runs):
        for load in given.loads:
            runs.append({"commit": commit, **measured(given.tier, given.processes, load, options)})
            RESULTS.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(found | {"runs": runs}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
