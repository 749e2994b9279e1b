"""The benchmark of first calls: a line for each process, with caches of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("processes")
def test_every_process_is_a_line_and_leaves_nothing_in_the_users_caches(tmp_path):
    cache = tmp_path / "cache"
    words = ["first_call", "--n", "50", "--repeats", "1", "--name", "calls", "--output", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks", *words]
    environment = {"OOC_CHOL_CACHE": str(cache), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    about = json.loads((tmp_path / "calls.json").read_text())
    assert about["n"] == 50 and about["machine"]["devices"]
    lines = about["lines"]
    assert [(line["case"], line["devices"], line["caches"]) for line in lines] == [
        ("numpy-array", "host:0", "warm"),
        ("numpy-array", "host:0", "cold"),
    ]
    for line in lines:
        parts = ("import_numpy_seconds", "import_seconds", "first_call_seconds", "second_call_seconds")
        assert 0 < sum(line[name] for name in parts) < line["process_seconds"]
        assert line["engine"] == "native"
    assert not cache.exists()
