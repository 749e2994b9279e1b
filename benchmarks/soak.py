"""Hundreds of calls in one process, every engine and pass in turn and every third made to fail: what it holds must not grow.

The calls are those of the tests of faults (``tests/faults/scenarios.py``): factorizations of order 80 out of core, in memory
and in files, and what is done with factors. Prints resident bytes, descriptors and threads as they go.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.running import Options, Parser
from ooc_chol.errors import AsymmetryWarning, PrecisionWarning
from tests.faults.scenarios import ENGINES, PASSES, Folder
from tests.faults.soak import soak

FOLDER = "soak"


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--calls", type=int, default=306, help="calls to make (default: 306, nine rounds of all scenarios)")
    parser.add_argument("--look-every", type=int, default=len(ENGINES) + len(PASSES), help="calls between two looks")


def run(options: Options) -> dict[str, Any]:
    """Make the calls, look, and tell what was seen."""
    for kind in (AsymmetryWarning, PrecisionWarning):
        warnings.simplefilter("ignore", kind)
    looks, began = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OOC_CHOL_CACHE"] = folder  # no rates of this machine: what is measured has no part in it
        (files := Path(folder) / "files").mkdir()
        for number, held in enumerate(soak(Folder(files), options.calls, options.look_every), 1):
            looks.append({"calls": number * options.look_every, "seconds": time.perf_counter() - began, **asdict(held)})
            mib = held.resident_bytes / (1 << 20)
            told = f"{mib:6.1f} MiB, {held.descriptors} descriptors, {held.threads} threads"
            print(f"{looks[-1]['calls']:5d} calls: {told}", flush=True)
    return {"case": f"soak, {options.name}", "looks": looks}
