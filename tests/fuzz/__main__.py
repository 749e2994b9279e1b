"""``python -m tests.fuzz --minutes 30 --seed 7``: every reader in turn, again and again, and a summary as JSON."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.campaign import Findings, fuzz
from tests.fuzz.corpus import readers


def main() -> int:
    """Run the campaign; 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of all readers together (default: 5)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each round takes the next (default: 1)")
    parser.add_argument("--readers", nargs="+", choices=[reader.name for reader in readers()], metavar="NAME", help="only these")
    parser.add_argument("--cases", type=int, default=400, help="by chance, of each reader in a round (default: 400)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary here")
    options = parser.parse_args()
    names = options.readers or [reader.name for reader in readers()]
    ends_at, seed, all_found = time.monotonic() + 60 * options.minutes, options.seed, []
    while seed == options.seed or time.monotonic() < ends_at:
        for name in names:
            if seed == options.seed or time.monotonic() < ends_at:
                left = max(ends_at - time.monotonic(), 60.0)
                all_found.append(fuzz(name, seed, options.cases, seconds=left))
                _tell(all_found[-1], seed)
        seed += 1
    summary = _summary(all_found, options.seed, seed - 1)
    if options.json is not None:
        options.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(f"{summary['cases']} cases, {len(summary['problems'])} problems")
    return 1 if summary["problems"] else 0


def _tell(found: Findings, seed: int) -> None:
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(found.outcomes.items()))
    print(f"{found.reader} (seed {seed}): {found.cases} cases in {found.seconds:.1f} s: {outcomes}", flush=True)
    for problem in found.problems:
        print(f"  {problem['number']} {problem['case']}: {problem['problem']}\n    {problem['detail']}", flush=True)


def _summary(all_found: list[Findings], first_seed: int, last_seed: int) -> dict[str, object]:
    """All rounds together."""
    by_reader: dict[str, dict[str, int]] = {}
    for found in all_found:
        counts = by_reader.setdefault(found.reader, {"cases": 0})
        counts["cases"] += found.cases
        for name, count in found.outcomes.items():
            counts[name] = counts.get(name, 0) + count
    return {
        "seeds": [first_seed, last_seed],
        "cases": sum(found.cases for found in all_found),
        "seconds": sum(found.seconds for found in all_found),
        "readers": by_reader,
        "slowest": max((found.slowest for found in all_found), key=lambda one: one.get("seconds", 0)),
        "largest": max((found.largest for found in all_found), key=lambda one: one.get("peak", 0)),
        "problems": [problem for found in all_found for problem in found.problems],
        "rounds": [asdict(found) for found in all_found if found.problems],
    }


if __name__ == "__main__":
    raise SystemExit(main())
