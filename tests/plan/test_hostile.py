"""Hostile granularity: what a caller leaves open is the least there is, what is named stays; its tables name what there is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.hostile import FILES, USUAL

TESTS = Path(__file__).resolve().parents[1]
CHOICES = """
import os
import numpy as np, ooc_chol as oc
def test_it():
    plan = oc.plan(41, devices="host:0")
    assert (plan.grid.nb, plan.grid.nt) == (4, 11)
    assert plan.budgets[0].n_slots == 3
    named = oc.plan(41, tile_size=20, memory_budget="1 MiB", devices="host:0")
    assert (named.grid.nb, named.budgets[0].budget_bytes) == (20, 1 << 20)
    a = np.eye(41) * 3
    with oc.cholesky(a) as factor:
        assert factor.tile_size == 4 and np.allclose(np.asarray(factor), np.sqrt(a))
"""


def test_what_is_left_open_is_the_least(processes: None, tmp_path):
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(CHOICES)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent)}
    for granularity, told in (("usual", "assert (41, 1) == (4, 11)"), ("hostile", "1 passed")):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--granularity={granularity}"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert told in done.stdout, done.stdout + done.stderr


def test_the_tables_name_files_and_tests():
    files = {f"test_{name}.py": TESTS.parent / folder / f"test_{name}.py" for folder, names in FILES.items() for name in names}
    assert [str(file) for file in files.values() if not file.is_file()] == []
    for name in USUAL:
        file, _, test = name.partition("::")
        assert re.search(rf"^def {test}\(", files[file].read_text(encoding="utf-8"), flags=re.MULTILINE), name
