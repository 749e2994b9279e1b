"""Checksums of bytes in pieces: XXH3-64, seeded with what binds them to their place; 0 never is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import xxhash

#: Name of the checksums in headers.
ALGORITHM = "xxh3-64"
#: Bytes that have a checksum of their own: what a core's cache holds while they are read or written.
PIECE_BYTES = 1 << 20


def hash_bytes(data: Any, seed: int) -> int:
    """XXH3-64 of the bytes of a buffer, the interpreter lock released; 1 for 0."""
    return int(xxhash.xxh3_64_intdigest(data, seed)) or 1


def pieces(nbytes: int) -> Iterator[tuple[int, int]]:
    """First byte of each piece of so many bytes, and the byte behind its last."""
    for start in range(0, nbytes, PIECE_BYTES):
        yield start, min(start + PIECE_BYTES, nbytes)
