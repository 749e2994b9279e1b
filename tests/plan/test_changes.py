"""Changes that users see stand in a file each, of a known kind, and a release gathers them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]["fragment"]


def test_each_change_has_a_slug_a_known_kind_and_a_text_without_hyphen():
    named = re.compile(rf"[a-z0-9-]+\.(?:{'|'.join(KINDS)})\.md")
    changes = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    assert [path.name for path in changes if not named.fullmatch(path.name)] == []
    assert [path.name for path in changes if not re.match(r"[^\s#-]", path.read_text(encoding="utf-8"))] == []


def test_a_release_gathers_changes_of_every_kind(processes: None, tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    shutil.copytree(ROOT / "changes", tmp_path / "changes")
    for kind in KINDS:
        (tmp_path / "changes" / f"of-this-test.{kind}.md").write_text(f"**`oc.{kind}`** of a test.\n")
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9.9", "--date", "2030-01-31"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    release = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8").partition("## [9.9.9] - 2030-01-31\n")[2]
    parts = re.split(r"^### (.*)\n", release.partition("\n## ")[0], flags=re.MULTILINE)
    assert parts[1::2] == [KINDS[kind].get("name", kind.capitalize()) for kind in sorted(KINDS)]
    for kind, points in zip(sorted(KINDS), parts[2::2], strict=True):
        assert f"- **`oc.{kind}`** of a test.\n" in points
    assert [path.name for path in (tmp_path / "changes").iterdir()] == ["README.md"]
