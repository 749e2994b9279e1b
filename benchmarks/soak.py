"""Hundreds of calls in one process, every engine and pass in turn and every third made to fail: what it holds must not grow.

    python benchmarks/soak.py [--calls 300] [--look-every 34] [--case NAME]

The calls are those of the tests of faults (``tests/faults/scenarios.py``): factorizations of order 80 out of core, in memory and
in files, and what is done with factors. Prints resident bytes, descriptors and threads as they go, and with --case writes them to
``benchmarks/results/soak/NAME.json``. Run it from the repository's root, where ``tests`` can be imported.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ooc_chol.bench.results import commit, machine, write_json
from ooc_chol.errors import AsymmetryWarning, PrecisionWarning
from tests.faults.scenarios import ENGINES, PASSES, Folder
from tests.faults.soak import soak

RESULTS = Path(__file__).parent / "results" / "soak"


def main() -> None:
    """Make the calls, look, and write down what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=306, help="calls to make (default: 306, nine rounds of all scenarios)")
    parser.add_argument("--look-every", type=int, default=len(ENGINES) + len(PASSES), help="calls between two looks")
    parser.add_argument("--case", help="name of the result file")
    arguments = parser.parse_args()
    for kind in (AsymmetryWarning, PrecisionWarning):
        warnings.simplefilter("ignore", kind)
    looks, began = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OOC_CHOL_CACHE"] = folder  # no rates of this machine: what is measured has no part in it
        (files := Path(folder) / "files").mkdir()
        for number, held in enumerate(soak(Folder(files), arguments.calls, arguments.look_every), 1):
            looks.append({"calls": number * arguments.look_every, "seconds": time.perf_counter() - began, **asdict(held)})
            mib = held.resident_bytes / (1 << 20)
            print(
                f"{looks[-1]['calls']:5d} calls: {mib:6.1f} MiB, {held.descriptors} descriptors, {held.threads} threads",
                flush=True,
            )
    if arguments.case:
        content = {"case": f"soak, {arguments.case}", "commit": commit(), "machine": machine(with_gpus=False), "looks": looks}
        write_json(content, RESULTS / f"{arguments.case}.json")


if __name__ == "__main__":
    main()
