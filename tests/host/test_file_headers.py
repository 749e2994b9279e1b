"""Headers of factor files that say too much, and those of versions before checksums."""

from __future__ import annotations

import gzip
import json
import os
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ooc_chol as oc
from tests.host.damaged_files import made, numbers_of
from tests.host.factor_files import header_of, sealed_text
from tests.inside.dense import verify_file

pytestmark = pytest.mark.host

GOLDEN = Path(__file__).parent / "golden_factors"


def refusal(path: Path, most_bytes: int) -> str:
    """The message of loading a file, which must fail at once and without more memory than that."""
    tracemalloc.start()
    try:
        begun = time.perf_counter()
        with pytest.raises(oc.errors.TierError) as caught:
            oc.load(path)
        assert time.perf_counter() - begun < 5, "not at once"
        assert tracemalloc.get_traced_memory()[1] < most_bytes
    finally:
        tracemalloc.stop()
    return str(caught.value)


HOSTILE: dict[str, bytes] = {
    "deep nesting": b'{"version": 4, "kind": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "a number of 5000 digits": b'{"version": 4, "n": 1' + b"0" * 5000 + b"}",
    "no object": b"[4]",
    "no JSON": b"version 4",
    "not UTF-8": b'{"version": "\xff"}',
    "NaN": b'{"version": NaN}',
    "a long text": b'{"version": 4, "kind": "' + b"x" * 1_000_000 + b'"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_at_once(tmp_path: Path, name: str) -> None:
    factor = made(tmp_path, None)
    factor.path.write_bytes(sealed_text(HOSTILE[name]) + factor.raw)
    assert len(refusal(factor.path, 64 << 20)) < 1000


@pytest.mark.parametrize(
    "changes",
    [
        *({"n": value} for value in (10**400, 2**64, 2**63, 2**40, 2**31, 10**9, 1e400, "1" * 5000, -(10**400))),
        *({"nb": value} for value in (10**400, 2**64, 0, -1)),
        *({"n": 2**39, "nb": 1}, {"n": 2**40, "nb": 2**40}, {"data_offset": 2**62}, {"data_offset": 10**400}),
        *({"header_room": 2**62}, {"widened": [[10**400, 0]]}, {"formats": ["fp64"] * 10**5, "format_of_tile": "0" * 10**6}),
        *({"format_of_tile": [0] * 10**5}, {"created_by": "x" * 10**6, "version": 9}, {"complete": False, "n": 2**36, "nb": 1}),
    ],
    ids=lambda changes: "-".join(changes),
)
def test_hostile_fields_are_refused_at_once(tmp_path: Path, changes: dict[str, Any]) -> None:
    factor = made(tmp_path, None)
    text = json.dumps({**header_of(factor.path), **changes}).replace("Infinity", "1e400").encode()
    factor.path.write_bytes(sealed_text(text).ljust(2**21, b"\0") + factor.raw)
    assert len(refusal(factor.path, 64 << 20)) < 2000


@pytest.mark.parametrize("length", [900 << 30, 3 << 30, 65 << 20, 2**64 - 1, 2**63])
def test_a_length_of_the_header_is_not_believed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "sparse"
    path.write_bytes(struct.pack("<8sQI", b"OOCCHOL\n", length, 0))
    os.truncate(path, 1 << 40)
    refusal(path, 1 << 20)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "L.ooc")
    with pytest.raises(oc.errors.TierError, match="no ordinary file"):
        oc.load(tmp_path / "L.ooc")
    with pytest.raises(oc.errors.TierError, match="no ordinary file"):
        verify_file(tmp_path / "L.ooc")


# versions before checksums


def _golden() -> Iterator[tuple[str, NDArray[Any], dict[str, int]]]:
    """Files that versions before checksums wrote, and what is in them."""
    i, j = np.indices((20, 20))
    dense = np.tril((3 * i + 5 * j) % 7 - 3.0)
    np.fill_diagonal(dense, 8.0 + np.arange(20) % 5)
    imaginary = 1j * np.tril((2 * i + j) % 5 - 2, -1)
    yield "version-1", dense, {"fp64": 6}
    yield "version-2", dense, {"fp64": 4, "fp32": 1, "fp16": 1}
    yield "version-3-fp32", dense.astype(np.float32), {"fp32": 6}
    yield "version-3-complex64", (dense + imaginary).astype(np.complex64), {"complex64": 6}
    yield "version-3-complex128", dense + imaginary, {"complex128": 6}


@pytest.mark.parametrize(("name", "dense", "formats"), list(_golden()), ids=lambda value: value if isinstance(value, str) else "")
def test_files_of_versions_before_checksums_are_read(
    tmp_path: Path, name: str, dense: NDArray[Any], formats: dict[str, int]
) -> None:
    path = tmp_path / "L.ooc"
    path.write_bytes(gzip.decompress((GOLDEN / f"{name}.ooc.gz").read_bytes()))
    verdict = verify_file(path)
    assert (verdict.is_whole, verdict.has_checksums, verdict.tiles) == (True, False, 0)
    assert "no checksums" in str(verdict)
    with oc.load(path) as factor:
        assert np.array_equal(np.asarray(factor), dense) and np.asarray(factor).dtype == dense.dtype
        assert factor.formats == formats
        assert np.array_equal(factor.rows(range(3, 11), 20), dense[3:11])
        factor.save(tmp_path / "new.ooc")
    assert np.array_equal(numbers_of(tmp_path / "new.ooc"), dense)
    assert verify_file(tmp_path / "new.ooc").tiles == 6


def test_an_exponent_that_no_tile_has_is_an_error_in_files_without_checksums(tmp_path: Path) -> None:
    path = tmp_path / "L.ooc"
    raw = bytearray(gzip.decompress((GOLDEN / "version-2.ooc.gz").read_bytes()))
    raw[65536 + 4096 + 128 + 5] = 0x42  # of tile (1, 0), 8 by 8 of fp16
    path.write_bytes(raw)
    with oc.load(path) as factor, pytest.raises(oc.errors.DamagedFileError, match=r"tile \(1, 0\).*exponent"):
        np.asarray(factor)
