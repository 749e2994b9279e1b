"""``ooc-chol verify``: what it says of whole and of damaged files, to people and to programs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.damaged_files import MIXED, made
from tests.inside.cli import main
from tests.inside.dense import FileStore

pytestmark = pytest.mark.host


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a factor, which is the current one."""
    monkeypatch.chdir(tmp_path)
    a = np.eye(64) + 1
    oc.cholesky(a, store="a.ooc", tile_size=32).close()
    made(tmp_path, MIXED)
    return tmp_path


def damage(name: str, tile: tuple[int, int]) -> int:
    """Flip a byte of a tile, and return its place."""
    store = FileStore.open(name)
    place = store.layout.offset(*tile) + 5
    store.close()
    with open(name, "r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 4]))
    return place


def test_whole_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "a.ooc", "L.ooc"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("a.ooc: whole (3 tiles, ") and "GB/s" in lines[0]


def test_a_damaged_file_among_whole_ones(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [damage("a.ooc", (1, 0)), damage("a.ooc", (1, 1))]
    assert main(["verify", "L.ooc", "a.ooc"]) == 1
    printed = capsys.readouterr().out
    assert "L.ooc: whole" in printed and "a.ooc: damaged, 2 of 3 tiles" in printed
    assert f"tile (1, 0): bytes {places[0] - 5} to" in printed
    assert main(["verify", "L.ooc", "a.ooc", "--json", "--quiet"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["whole"] is False
    whole, damaged = answer["files"]
    assert (whole["path"], whole["is_whole"], whole["tiles"], whole["damage"]) == ("L.ooc", True, 6, [])
    assert [
        (each["tile"], each["first"] <= place < each["stop"]) for each, place in zip(damaged["damage"], places, strict=True)
    ] == [
        ([1, 0], True),
        ([1, 1], True),
    ]
    assert damaged["seconds"] > 0 and damaged["nbytes"] == 3 * 32 * 32 * 8


def test_quiet_says_nothing_but_the_status(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage("a.ooc", (0, 0))
    assert main(["verify", "a.ooc", "--quiet"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_file_without_checksums_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = Path(__file__).parent / "golden_factors" / "version-2.ooc.gz"
    Path("old.ooc").write_bytes(gzip.decompress(old.read_bytes()))
    assert main(["verify", "old.ooc"]) == 0
    assert "version 2 has no checksums" in capsys.readouterr().out


def test_a_header_that_is_damaged_and_what_is_no_factor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("a.ooc", "r+b") as file:
        file.seek(100)
        file.write(b"\0\0\0\0")
    assert main(["verify", "a.ooc"]) == 1
    assert "its header is damaged" in capsys.readouterr().out
    Path("notes.txt").write_text("no factor")
    assert main(["verify", "notes.txt"]) == 1
    assert "not a factor file" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nothing.ooc", "."])
def test_what_is_no_file_is_met_before_anything_is_read(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["verify", "a.ooc", name]) == 2
    captured = capsys.readouterr()
    assert name in captured.err and "whole" not in captured.out
