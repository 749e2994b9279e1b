"""Hints for what is not installed name the clone that the package came from, and extras that there are."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import ooc_chol.toolbox as tb
from tests.inside.ground import _clone, installation

ROOT = Path(__file__).resolve().parents[2]


def test_the_hint_installs_from_this_clone():
    change, install = tb.install_hint("plots").split(" && ")
    assert shlex.split(change) == ["cd", str(ROOT)] and shlex.split(install)[1:] == ["-m", "pip", "install", ".[plots]"]


def clone(folder):
    (folder / "ooc_chol").mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    return folder


def test_an_installed_package_knows_its_clone_by_what_the_installer_wrote(tmp_path):
    package, there = tmp_path / "site-packages" / "ooc_chol", clone(tmp_path / "my clone")
    package.mkdir(parents=True)
    url = {"dir_info": {}, "url": there.as_uri()}
    assert " " in there.name and _clone(package, json.dumps(url)) == there
    assert _clone(clone(tmp_path / "other") / "ooc_chol", json.dumps(url)) == tmp_path / "other"  # the sources that run


@pytest.mark.parametrize("told", [None, {"url": "https://example.org/ooc_chol.git"}, {"url": "file:///no/such/clone"}])
def test_without_a_clone_there_is_none(tmp_path, told, monkeypatch):
    assert _clone(tmp_path / "ooc_chol", None if told is None else json.dumps(told)) is None
    monkeypatch.setattr(installation, "_clone", lambda *_: None)
    assert tb.install_hint("io") == "in a clone of ooc_chol: python3 -m pip install '.[io]'"


def test_every_hint_names_an_extra_and_no_index():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "ooc_chol").rglob("*.py")}
    named = [name for text in texts.values() for name in re.findall(r"install_hint\(['\"](\w+)['\"]\)", text)]
    assert len(named) > 5 and set(named) <= set(extras)
    assert [path for path, text in texts.items() if re.search(r"install ['\"]?ooc_chol", text)] == []
