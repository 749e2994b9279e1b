"""The benchmark of first calls: a line for each process, with caches of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "first_call.py"


@pytest.mark.usefixtures("processes")
def test_every_process_is_a_line_and_leaves_nothing_in_the_users_caches(tmp_path):
    output, cache = tmp_path / "lines.jsonl", tmp_path / "cache"
    command = [sys.executable, str(SCRIPT), "--n", "50", "--repeats", "1", "--output", str(output)]
    environment = {"OOC_CHOL_CACHE": str(cache), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(SCRIPT.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    about, *lines = map(json.loads, output.read_text().splitlines())
    assert about["n"] == 50 and about["machine"]["devices"]
    assert [(line["case"], line["devices"], line["caches"]) for line in lines] == [
        ("numpy-array", "host:0", "warm"),
        ("numpy-array", "host:0", "cold"),
    ]
    for line in lines:
        parts = ("import_numpy_seconds", "import_seconds", "first_call_seconds", "second_call_seconds")
        assert 0 < sum(line[name] for name in parts) < line["process_seconds"]
        assert line["engine"] == "native"
    assert not cache.exists()
