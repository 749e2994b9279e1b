"""A run from a file to a file holds no more than its budgets and a constant, in its process and in the system's cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.runs import ENVIRONMENT
from tests.inside.dense import disk_tier

#: Bytes beside the budgets: what libraries and the plan take more than in the small call before, threads, and tiles on their way.
CONSTANT = 24 << 20
N = 3000
BUDGET = 12_000_000
#: In a process of its own: a small call that loads all that is needed, then the one that is measured.
SCRIPT = """
import json, os, sys
import numpy as np
import ooc_chol as oc

def resident_maximum():
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

folder, options = sys.argv[1], json.loads(sys.argv[2])
options["devices"] = "host:0"
store = options.pop("store", None) and folder + "/L.ooc"
small = {name: value for name, value in options.items() if "budget" not in name and name != "tile_size"}
oc.cholesky(folder + "/small.npy", store=folder + "/small.ooc", tile_size=64, memory_budget=2_000_000, **small).close()
before = resident_maximum()
factor = oc.cholesky(folder + "/a.npy", store=store, **options)
print(json.dumps({"beyond": resident_maximum() - before, "logdet": factor.logdet()}))
factor.close()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a matrix of 72 MB, whose pages are on the disk and not in the cache."""
    path = tmp_path_factory.mktemp("memory")
    for name, n in (("small", 400), ("a", N)):
        places = np.arange(n) / 50.0
        np.save(path / f"{name}.npy", np.exp(-np.abs(places[:, None] - places)) + 0.1 * np.eye(n))
        with open(path / f"{name}.npy", "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def measured(folder, **options):
    """What the process of one call tells."""
    words = [sys.executable, "-c", SCRIPT, str(folder), json.dumps(options)]
    run = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def cached_bytes(path):
    """Bytes of a file in the system's cache, by the system's own count of pages that a map of it would find."""
    import ctypes
    import mmap

    size = os.path.getsize(path) // mmap.PAGESIZE * mmap.PAGESIZE
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        found = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
        entries = np.frombuffer(mapped, np.uint8)
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(entries.ctypes.data), ctypes.c_size_t(size), found) == 0
        del entries
        return mmap.PAGESIZE * int(np.count_nonzero(np.frombuffer(found, np.uint8) & 1))


ENGINES = {
    "native": {"fp64": "native"},
    "mixed": {"fp64": "native", "precision_threshold": 1e-6},
    "residue": {"fp64": "residue", "moduli": 14},
}


@pytest.mark.parametrize(
    ("engine", "host_budget"),
    [
        ("native", 1_000_000),
        ("native", 10_000_000),
        *[
            pytest.param(engine, host_budget, marks=pytest.mark.thorough)
            for engine in ("mixed", "residue")
            for host_budget in (1_000_000, 10_000_000)
        ],
    ],
)
@pytest.mark.usefixtures("processes")
def test_a_run_of_files_stays_within_its_budgets(folder, engine, host_budget):
    found = measured(folder, store=True, memory_budget=BUDGET, host_budget=host_budget, **ENGINES[engine])
    assert found["beyond"] <= BUDGET + host_budget + CONSTANT
    assert cached_bytes(folder / "a.npy") <= 1 << 20


def test_tiles_that_there_is_no_memory_for_are_refused(folder, monkeypatch):
    monkeypatch.setattr(disk_tier, "free_host_bytes", lambda: 12_000_000)
    options = {"memory_budget": 9_000_000, "host_budget": 8_000_000, "devices": "host:0", "fp64": "native"}
    with pytest.raises(oc.BudgetError, match=r"host memory for tiles of L.*smaller host_budget"):
        oc.cholesky(folder / "a.npy", store=folder / "refused.ooc", **options)
    assert not list(folder.glob("refused*"))


@pytest.mark.usefixtures("processes")
def test_the_measure_sees_what_an_l_in_memory_takes(folder):
    """Else the bound of the other tests would hold for anything."""
    found = measured(folder, memory_budget=BUDGET, tile_size=256, **ENGINES["native"])
    assert found["beyond"] > BUDGET + 10_000_000
    assert cached_bytes(folder / "a.npy") > 10 << 20
