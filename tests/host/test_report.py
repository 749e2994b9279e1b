"""``ooc-chol report``: versions, devices and the plan as users have them, and nothing of who and where they are."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy

import ooc_chol as oc
from tests.inside.cli import main

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def test_a_report_has_versions_devices_and_the_plan_in_words(capsys, tmp_path):
    file = tmp_path / "report.txt"
    assert main(["report", "--n", "700", "--tile-size", "100", "--devices", "host:0", "--output", str(file)]) == 0
    told = capsys.readouterr().out
    assert file.read_text(encoding="utf-8") == told
    for fact in (oc.__version__, platform.python_version(), f"numpy {np.__version__}", f"scipy {scipy.__version__}", "host:0"):
        assert fact in told
    assert told.endswith(f"{oc.plan(700, tile_size=100, devices='host:0')}\n")


def test_a_report_names_no_person_host_or_folder(capsys, tmp_path, monkeypatch):
    """The home folder has a space in its name; a matrix lies there, and the reason why there is no GPU names files."""
    home = tmp_path / "Jane Doe"
    home.mkdir()
    np.save(home / "a.npy", np.eye(50))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "jane.doe")
    monkeypatch.setenv("LOGNAME", "jane.doe")
    problem = f"lib.so, {home}/lib/lib.so: no such file; cd {tmp_path}/clone && pip install '.[cuda13]'"
    found = replace(oc.devices(), cuda_problem=problem)
    monkeypatch.setattr(oc, "devices", lambda: found)
    monkeypatch.setattr(platform, "uname", lambda: platform.uname_result("Linux", "jane-desk", "6.1", "", "x86_64"))
    assert main(["report", "--matrix", str(home / "a.npy"), "--json"]) == 0
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert "lib.so, ~/lib/lib.so: no such file; cd .../clone && pip install '.[cuda13]'" in text
        for private in ("Jane", "jane", str(tmp_path), str(Path(oc.__file__).parents[1])):
            assert private not in text
    assert json.loads(told.out)["plan"]["n"] == 50


def test_options_of_a_plan_without_a_matrix_are_refused(capsys):
    assert main(["report", "--tile-size", "64"]) == 2
    assert "give --n or --matrix" in capsys.readouterr().err
