"""The pages of all versions of the documentation site."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.documents import ROOT


def made(folder):
    """Run the command: its output and its status."""
    command = [sys.executable, ROOT / "docs" / "versions.py", folder]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("others", [(), ("0.9.0", "0.10.0", "doctrees", "0.2")])
def test_the_newest_version_comes_first(processes: None, tmp_path, others):
    """Numbers are compared as versions are, and a folder that is none, or without pages, is left out."""
    for name in ("0.1.0", *others):
        (tmp_path / name).mkdir()
        if name != "0.2":
            (tmp_path / name / "index.html").write_text("")
    done = made(tmp_path)
    assert done.returncode == 0, done.stderr
    listed = (tmp_path / "versions.html").read_text()
    wanted = ["0.10.0", "0.9.0", "0.1.0"] if others else ["0.1.0"]
    assert [line.split(">")[2].removesuffix("</a") for line in listed.splitlines() if line.startswith("<li>")] == wanted
    assert f"url={wanted[0]}/index.html" in (tmp_path / "index.html").read_text()


def test_a_folder_without_versions_is_refused(processes: None, tmp_path):
    done = made(tmp_path)
    assert done.returncode == 1 and "no folder of a version" in done.stderr
    assert not list(tmp_path.iterdir())
