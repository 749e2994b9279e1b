"""Thousands of mutations of small files of every format, from a fixed seed: a matrix or a typed error, soon, in little memory."""

from __future__ import annotations

import gzip
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import ooc_chol as oc
from tests.host.sparse_files import folder, graph, matrix, metis
from tests.inside.sparse import rows_of

# Lists of edges without a vertex 0 are warned of; mutations make some.
pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore:.*vertices begin with:ooc_chol.errors.InputWarning")]

#: Mutations of one file of every format, of others of the format, and of each with ``--thorough``.
FIRST, OTHERS, THOROUGH = 200, 50, 2000
#: Bytes that reading may take beyond those of the file, and seconds of the processor.
MOST_BYTES, MOST_SECONDS = 64 << 20, 5.0

Mutation = Callable[[bytearray, np.random.Generator], None]


def _flip(raw: bytearray, random: np.random.Generator) -> None:
    for _ in range(int(random.integers(1, 5))):
        raw[int(random.integers(len(raw)))] ^= 1 << int(random.integers(8))


def _truncate(raw: bytearray, random: np.random.Generator) -> None:
    del raw[int(random.integers(len(raw))) :]


def _cut(raw: bytearray, random: np.random.Generator) -> None:
    at = int(random.integers(len(raw)))
    del raw[at : at + int(random.integers(1, 40))]


def _repeat(raw: bytearray, random: np.random.Generator) -> None:
    at, size = int(random.integers(len(raw))), int(random.integers(1, 200))
    raw[at:at] = raw[at : at + size] * int(random.integers(1, 4))


def _noise(raw: bytearray, random: np.random.Generator) -> None:
    at = int(random.integers(len(raw)))
    raw[at : at + 8] = random.bytes(int(random.integers(0, 12)))


def _zero(raw: bytearray, random: np.random.Generator) -> None:
    at = int(random.integers(len(raw)))
    raw[at : at + 16] = bytes(len(raw[at : at + 16]))


def _digits(raw: bytearray, random: np.random.Generator) -> None:
    """Other digits where there are some, and sometimes more of them."""
    places = [at for at, byte in enumerate(raw) if chr(byte).isdigit()] or [0]
    for at in random.choice(places, 3):
        raw[at : at + 1] = str(random.integers(10 ** int(random.choice([1, 1, 1, 2, 10, 18])))).encode() * int(
            random.integers(1, 3)
        )


def _largest(raw: bytearray, random: np.random.Generator) -> None:
    """A field of four or eight bytes that is as large as can be, or negative."""
    at, size = int(random.integers(len(raw))), int(random.choice([4, 8]))
    raw[at : at + size] = int(random.choice([2**31 - 1, 2**31, 2**32 - 1])).to_bytes(size, "little")


def _lines(raw: bytearray, random: np.random.Generator) -> None:
    """Two lines change places, or one becomes another."""
    lines = bytes(raw).split(b"\n")
    one, other = random.integers(len(lines), size=2)
    words = [
        b"",
        b"%",
        b"1",
        b"-1 2",
        b"nan nan",
        b"1 1 inf",
        b"1e999 1",
        b"0x1 2",
        b"1,2,3",
        b"\xff\xfe1",
        b"9" * 400,
        b" " * 999,
    ]
    lines[one], lines[other] = lines[other], words[int(random.integers(len(words)))] if random.integers(2) else lines[one]
    raw[:] = b"\n".join(lines)


ALL: tuple[Mutation, ...] = (_flip, _truncate, _cut, _repeat, _noise, _zero, _digits, _largest, _lines)


def _market(symmetry: str, field: str = "real") -> bytes:
    written = BytesIO()
    a = graph() if symmetry == "symmetric" else matrix()
    scipy.io.mmwrite(written, a, field=field, symmetry=symmetry)
    return written.getvalue()


def _npz(fmt: str) -> bytes:
    written = BytesIO()
    sp.save_npz(written, matrix().asformat(fmt))
    return written.getvalue()


def _pairs(between: str) -> bytes:
    a = graph().tocoo()
    return "\n".join(between.join(map(str, entry)) for entry in zip(a.row, a.col, a.data, strict=True)).encode()


FILES: dict[str, bytes] = {
    "real.mtx": _market("general"),
    "whole.mtx": _market("symmetric", "integer"),
    "plain.graph": metis(graph(weighted=False)).encode(),
    "weighted.graph": metis(graph(), "011", lambda vertex: str(vertex)).encode(),
    "pairs.txt": _pairs(" "),
    "pairs.csv": _pairs(","),
    "rows.npz": _npz("csr"),
    "columns.npz": _npz("csc"),
    "coordinates.npz": _npz("coo"),
}


def _read(path: Path, nbytes: int) -> None:
    """Read all of it, or meet a typed error; both within bounds."""
    tracemalloc.reset_peak()
    before, begun = tracemalloc.get_traced_memory()[0], time.process_time()
    try:
        for run in rows_of(path).runs():
            assert run.starts[-1] == run.columns.size
            assert run.columns.size == 0 or run.columns.min() >= 0
    except (oc.OocCholError, FileNotFoundError) as error:
        assert path.name in str(error) or isinstance(error, oc.errors.NonFiniteError), error
    assert time.process_time() - begun < MOST_SECONDS
    assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES + nbytes


@pytest.fixture(autouse=True)
def _traced() -> object:
    tracemalloc.start()
    yield None
    tracemalloc.stop()


def counted(*names: str) -> list[object]:
    """Each name with the number of its mutations, and with more of them."""
    usual = [
        pytest.param(name, FIRST if name in ("real.mtx", "plain.graph", "pairs.txt", "rows.npz") else OTHERS) for name in names
    ]
    return usual + [pytest.param(name, THOROUGH, marks=pytest.mark.thorough) for name in names]


@pytest.mark.parametrize(("name", "count"), counted(*FILES))
def test_mutated_files(tmp_path: Path, name: str, count: int) -> None:
    random = np.random.default_rng(len(name))
    for number in range(count):
        raw = bytearray(FILES[name])
        ALL[number % len(ALL)](raw, random)
        (tmp_path / name).write_bytes(raw)
        _read(tmp_path / name, len(raw))


@pytest.mark.parametrize(("name", "count"), counted("real.mtx", "weighted.graph", "pairs.csv"))
def test_mutated_compressed_files(tmp_path: Path, name: str, count: int) -> None:
    """Half of the time what is compressed is damaged, half of the time the compressed bytes are."""
    random = np.random.default_rng(len(name))
    path = tmp_path / f"{name}.gz"
    for number in range(count):
        raw = bytearray(FILES[name])
        if number % 2:
            ALL[number % len(ALL)](raw, random)
        raw = bytearray(gzip.compress(raw, mtime=0))
        if number % 2 == 0:
            ALL[number % len(ALL)](raw, random)
        path.write_bytes(raw)
        _read(path, 1032 * len(raw))


@pytest.mark.parametrize(("fmt", "count"), counted("csr", "csc", "coo"))
def test_mutated_members(tmp_path: Path, fmt: str, count: int) -> None:
    """Members of an archive, whose checksums fit."""
    random = np.random.default_rng(len(fmt))
    with zipfile.ZipFile(BytesIO(_npz(fmt))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    path = tmp_path / "a.npz"
    for number in range(count):
        name = str(random.choice(list(members)))
        raw = bytearray(members[name])
        ALL[number % len(ALL)](raw, random)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for each, data in members.items():
                archive.writestr(each, bytes(raw) if each == name else data)
        _read(path, len(raw))


@pytest.mark.parametrize("count", [FIRST, pytest.param(THOROUGH, marks=pytest.mark.thorough)])
def test_mutated_folders(tmp_path: Path, count: int) -> None:
    random = np.random.default_rng(1)
    path = folder(tmp_path / "A", matrix())
    whole = {file: file.read_bytes() for file in path.iterdir()}
    for number in range(count):
        file = list(whole)[int(random.integers(len(whole)))]
        raw = bytearray(whole[file])
        ALL[number % len(ALL)](raw, random)
        file.write_bytes(raw)
        _read(path, len(raw))
        file.write_bytes(whole[file])
