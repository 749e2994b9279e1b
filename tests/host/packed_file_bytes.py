"""Bytes of packed files with a change in them that is signed as it should be."""

from __future__ import annotations

import json

import numpy as np

from tests.inside.files import _FIRST, PIECE_BYTES, first_page, hash_bytes

PAGE = 4096


def header_of(data):
    *_, offset, length, _ = _FIRST.unpack_from(data)
    return offset, json.loads(data[offset : offset + length])


def with_header(data, change):
    """The file with another header, signed as it should be."""
    offset, header = header_of(data)
    change(header)
    text = json.dumps(header).encode()
    return first_page(offset, text) + data[PAGE:offset] + text


def with_block(data, number, change):
    """The file with another block, signed as it should be."""
    _, header = header_of(data)
    sizes = [size for size, _ in header["blocks"]]
    start = PAGE + sum(-(-size // PAGE) * PAGE for size in sizes[:number])
    block = np.frombuffer(data, np.uint8, sizes[number], start).copy()
    change(block, header["facts"]["blocks"][number])
    whole = block.tobytes().ljust(-(-len(block) // PAGE) * PAGE, b"\0")
    data = data[:start] + whole + data[start + len(whole) :]
    assert len(block) <= PIECE_BYTES

    def sign(header):
        header["blocks"][number][1] = f"{hash_bytes(whole, number):016x}"

    return with_header(data, sign)
