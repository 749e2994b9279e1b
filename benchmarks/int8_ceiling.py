"""Largest sustained rate of int8 products on Hopper by a kernel of our own, with sums reduced in registers and without.

    python -m benchmarks int8_ceiling --name h200

``int8_ceiling.cu`` says how it multiplies. It is compiled by ``nvcc`` and run once. A line is one shape, one epilogue and one
size of clusters: Top/s (``2 M N K``), wrong entries among those that a plain kernel checks, the clock of the multiprocessors and
watts. Without loads the products run on what shared memory holds: what the tensor cores can do where nothing feeds them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.running import Options

FOLDER = "residue_rates"
TAKES = {"seconds": 3.0, "warm": 1.5}
SOURCE = Path(__file__).with_suffix(".cu")
BUILD = ("-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a")


def usual_name(options: Options) -> str:
    """Name of the file where none is given."""
    return "int8-ceiling"


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Every shape, epilogue and size of clusters."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise OSError("there is no nvcc: this case compiles its kernel")
    with TemporaryDirectory() as folder:
        program = str(Path(folder, "int8_ceiling"))
        subprocess.run([nvcc, *BUILD, "-o", program, str(SOURCE)], check=True)
        words = [program, f"--seconds={options.seconds:g}", f"--warm={options.warm:g}"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
        if running.returncode:
            sys.exit(running.returncode)
