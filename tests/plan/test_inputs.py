"""What every reader opens files with: regular files and pipes that somebody writes to, no more bytes than meant, plain JSON."""

from __future__ import annotations

import json
import os
import threading

import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat import read_table


def test_a_regular_file_is_read_through_links(tmp_path):
    (tmp_path / "file").write_bytes(b"1\n2\n")
    (tmp_path / "link").symlink_to("file")
    with tb.input_file(tmp_path / "link") as file:
        assert file.read() == b"1\n2\n"
    assert tb.input_bytes(tmp_path / "file", 4) == b"1\n2\n"
    assert list(tb.input_lines(tmp_path / "file", 2)) == [b"1\n", b"2\n"]


@pytest.mark.parametrize("pipes", [False, True])
def test_what_is_no_file_is_refused_at_once(tmp_path, pipes):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(oc.errors.TierError, match=r"is a (pipe|device)"):
            tb.input_file(name, pipes=pipes)
    with pytest.raises(IsADirectoryError):
        tb.input_file(tmp_path, pipes=pipes)
    with pytest.raises(FileNotFoundError):
        tb.input_file(tmp_path / "nothing", pipes=pipes)
    with pytest.raises(ValueError, match="null character"):
        tb.input_file("a\0b", pipes=pipes)


def test_no_descriptor_is_left(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for name in (tmp_path / "pipe", tmp_path, "/dev/zero"):
        for pipes in (False, True):
            with pytest.raises(OSError):
                tb.input_file(name, pipes=pipes)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_table_comes_through_a_pipe_that_somebody_writes_to(is_slow):
    """As a shell makes for ``<(command)``."""
    reading, writing = os.pipe()
    began = threading.Event()

    def write():
        began.wait(0.2 if is_slow else 0.0)
        with os.fdopen(writing, "w") as file:
            file.write("x,y\n" + "1,2\n" * 20_000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        table = read_table(f"/dev/fd/{reading}", ("x", "y"))
    finally:
        writer.join()
        os.close(reading)
    assert len(table.columns["x"]) == 20_000


def test_more_than_a_file_of_its_kind_has_is_not_read(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    os.truncate(tmp_path / "file", 1 << 40)
    with pytest.raises(oc.errors.TierError, match=r"file has 1.1 TB, but a file of its kind has at most 1 MB"):
        tb.input_bytes(tmp_path / "file", 1_000_000)
    with pytest.raises(oc.errors.TierError, match=r"line 1 of .*file is longer than 1 MB"):
        list(tb.input_lines(tmp_path / "file", 1_000_000))


@pytest.mark.parametrize("text", ["1", "-1.5e300", '"é"', "[]", '{"a": [1, null, true, {"b": "\\u00e9\\ud83d\\ude00"}]}'])
def test_json_that_means_one_thing(text):
    assert tb.parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "'a' is there twice"),
        ("[NaN]", "NaN is there"),
        ("[-Infinity]", "-Infinity is there"),
        ("[1e400]", "beyond what FP64 holds"),
        ("9" * 400, "of 400 digits"),
        ("9" * 5000, "of 5000 digits"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ('"\\ud800"', "half a character"),
        ("", "Expecting value"),
        ("\ufeff1", "BOM"),
        ("1 2", "Extra data"),
    ],
)
def test_json_that_a_machine_cannot_hold_or_means_two_things(text, why):
    with pytest.raises(ValueError, match=why) as caught:
        tb.parse_json(text)
    assert type(caught.value) is ValueError
