"""Factor files, read and forged by nothing but their documentation."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

MAGIC, COPY = b"OOCCHOL\n", b"OOCCOPY\n"
PREFIX = 20


def header_of(path: Path, offset: int = 0) -> dict[str, Any]:
    """The JSON object of a file of version 4, every check of it made."""
    raw = path.read_bytes()[offset:]
    magic, length, checksum = struct.unpack("<8sQI", raw[:PREFIX])
    assert magic == (COPY if offset else MAGIC)
    text = raw[PREFIX : PREFIX + length]
    assert zlib.crc32(text) == checksum
    assert xxhash.xxh3_64_digest(raw[: PREFIX + length])[::-1] == raw[PREFIX + length : PREFIX + length + 8]
    fields: dict[str, Any] = json.loads(text)
    assert not any(raw[PREFIX + length + 8 : fields["header_room"]])
    return fields


def sealed(fields: object, magic: bytes = MAGIC) -> bytes:
    """A header with these fields, every check of it right."""
    return sealed_text(json.dumps(fields).encode(), magic)


def sealed_text(text: bytes, magic: bytes = MAGIC) -> bytes:
    """A header with this text, every check of it right."""
    raw = struct.pack("<8sQI", magic, len(text), zlib.crc32(text)) + text
    return raw + xxhash.xxh3_64_digest(raw)[::-1]


def with_header(path: Path, **changes: Any) -> None:
    """Rewrite the header with changed, added or (None) removed fields, its checks right."""
    may_be_null = ("format_of_tile", "index_hash", "checkpoint")
    fields = {**header_of(path), **changes}
    fields = {name: value for name, value in fields.items() if value is not None or (name in may_be_null and name not in changes)}
    with path.open("r+b") as file:
        file.write(sealed(fields).ljust(4096, b"\0"))


def index_of(path: Path) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The index of checksums of a file of version 4: one for each place."""
    fields = header_of(path)
    nt = -(-fields["n"] // fields["nb"])
    count = nt * (nt + 1) // 2 * (1 if fields["format_of_tile"] is None else 2)
    return np.frombuffer(path.read_bytes(), "<u8", count, fields["checksums_offset"])


def tile_checksum(data: bytes, n: int, nb: int, i: int, j: int, fmt: str) -> int:
    """The checksum of a tile with these stored bytes."""
    seed = xxhash.xxh3_64_intdigest(struct.pack("<4Q", n, nb, i, j) + fmt.encode())
    pieces = [xxhash.xxh3_64_intdigest(data[at : at + 2**20], seed) for at in range(0, len(data), 2**20)]
    return xxhash.xxh3_64_intdigest(struct.pack(f"<{len(pieces)}Q", *(each or 1 for each in pieces)), seed) or 1
