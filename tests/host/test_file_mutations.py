"""Thousands of mutations of factor files, from a fixed seed: errors or the same numbers, never others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from tests.host.damaged_files import GRID, MIXED, Factor, is_right, made
from tests.host.factor_files import header_of, sealed
from tests.inside.dense import FileStore
from tests.inside.precision import PrecisionFormat

pytestmark = pytest.mark.host


def _flip(raw: bytearray, random: np.random.Generator, factor: Factor) -> None:
    for _ in range(int(random.integers(1, 9))):
        raw[int(random.integers(len(raw)))] ^= 1 << int(random.integers(8))


def _zero_page(raw: bytearray, random: np.random.Generator, factor: Factor) -> None:
    page = 4096 * int(random.integers(len(raw) // 4096))
    raw[page : page + 4096] = bytes(4096)


def _random_sector(raw: bytearray, random: np.random.Generator, factor: Factor) -> None:
    sector = 512 * int(random.integers(len(raw) // 512))
    raw[sector : sector + 512] = random.bytes(512)


def _swap_pages(raw: bytearray, random: np.random.Generator, factor: Factor) -> None:
    one, other = (4096 * int(page) for page in random.integers(len(raw) // 4096, size=2))
    raw[one : one + 4096], raw[other : other + 4096] = raw[other : other + 4096], raw[one : one + 4096]


def _swap_tiles(raw: bytearray, random: np.random.Generator, factor: Factor) -> None:
    """Two tiles change places with their checksums, and the index is signed again."""
    fields = header_of(factor.path)
    store = FileStore.open(factor.path)
    (a, b), tiles = random.choice(GRID.n_tiles, 2, replace=False), list(GRID.tiles())
    spans = [(store.layout.offset(*tiles[each]), store.layout.nbytes(*tiles[each])) for each in (a, b)]
    store.close()
    size = min(span[1] for span in spans)
    _exchange(raw, spans[0][0], spans[1][0], size)
    _exchange(raw, fields["checksums_offset"] + 8 * int(a), fields["checksums_offset"] + 8 * int(b), 8)
    _sign_again(raw, fields)


def _truncate(raw: bytearray, random: np.random.Generator, factor: Factor) -> None:
    del raw[int(random.integers(len(raw))) :]


def _extend(raw: bytearray, random: np.random.Generator, factor: Factor) -> None:
    raw += random.bytes(int(random.integers(1, 9000)))


def _false_field(raw: bytearray, random: np.random.Generator, factor: Factor) -> None:
    """Another value of a field, every check of the header mended; half of the time the index is signed again too."""
    fields = header_of(factor.path)
    name = str(random.choice(list(fields)))
    value = fields[name]
    lies: list[Any] = [None, 0, -1, 1, True, "", [], {}, 8, 19, 21, 4096, 2**31, 2**64, 10**400, 1.5, [[1, 0]], "000000", value]
    if isinstance(value, int):
        lies += [value + 1, value - 1, 2 * value, -value]
    fields[name] = lies[int(random.integers(len(lies)))]
    _put_header(raw, fields)
    if random.integers(2) and isinstance(fields.get("checksums_offset"), int) and fields["checksums_offset"] < len(raw):
        _sign_again(raw, fields)


def _another_factor(raw: bytearray, random: np.random.Generator, factor: Factor) -> None:
    """A tile of another factor of the same shape."""
    store = FileStore.open(factor.path)
    index = list(GRID.tiles())[int(random.integers(GRID.n_tiles))]
    first, nbytes = store.layout.offset(*index), store.layout.nbytes(*index)
    store.close()
    raw[first : first + nbytes] = random.standard_normal(nbytes // 8).tobytes().ljust(nbytes, b"\0")


def _exchange(raw: bytearray, one: int, other: int, size: int) -> None:
    raw[one : one + size], raw[other : other + size] = raw[other : other + size], raw[one : one + size]


def _put_header(raw: bytearray, fields: dict[str, Any]) -> None:
    text = sealed(fields)
    raw[: len(text)] = text


def _sign_again(raw: bytearray, fields: dict[str, Any]) -> None:
    """Sign the index for what the header says of the matrix, as a writer does."""
    names = (
        *("n", "nb", "layout", "byte_order", "data_offset", "tile_alignment", "header_room", "checksum", "checksums_offset"),
        *("pieces_offset", "piece_bytes", "formats", "format_of_tile", "widened"),
    )
    geometry = json.dumps({name: fields[name] for name in names if name in fields}, sort_keys=True).encode()
    places = GRID.n_tiles * (1 if fields.get("format_of_tile") is None else 2)
    start = fields["checksums_offset"]
    seed = xxhash.xxh3_64_intdigest(geometry, 0)
    _put_header(raw, {**fields, "index_hash": f"{xxhash.xxh3_64_intdigest(bytes(raw[start : start + 8 * places]), seed):016x}"})


MUTATIONS = (_flip, _zero_page, _random_sector, _swap_pages, _swap_tiles, _truncate, _extend, _false_field, _another_factor)


@pytest.mark.parametrize(
    ("formats", "count"),
    [
        pytest.param(None, 1000, id="fp64"),
        pytest.param(MIXED, 1000, id="mixed"),
        pytest.param(None, 5000, id="fp64, more", marks=pytest.mark.thorough),
        pytest.param(MIXED, 5000, id="mixed, more", marks=pytest.mark.thorough),
    ],
)
def test_no_mutation_gives_other_numbers(tmp_path: Path, formats: tuple[PrecisionFormat, ...] | None, count: int) -> None:
    factor, random = made(tmp_path, formats), np.random.default_rng(20)
    errors = dict.fromkeys(MUTATIONS, 0)
    for number in range(count):
        mutation, raw = MUTATIONS[number % len(MUTATIONS)], bytearray(factor.raw)
        mutation(raw, random, factor)
        factor.path.write_bytes(raw)
        errors[mutation] += not is_right(factor)
        factor.path.write_bytes(factor.raw)
    assert errors[_extend] == 0, "what is behind the last tile is not read"
    every = (count - 1) // len(MUTATIONS)
    assert min(errors[_truncate], errors[_another_factor], errors[_swap_tiles]) >= every
    assert errors[_false_field] > every / 2
