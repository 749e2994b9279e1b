"""Checks of counts in headers, and of heaps of HDF5, which the NetCDF libraries believe without looking.

A count in the header of version 5 is memory that the library takes, however short the file is. An object of a global heap of HDF5
that takes no bytes is looked at for ever.
"""

from __future__ import annotations

import mmap
import struct
from typing import BinaryIO

#: Marks of the lists of a header, before which the number of entries stands; 0 for an empty list.
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
#: Bytes of a value, by the number of its type.
_VALUE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
#: Mark of a global heap of HDF5 with its version, bytes of its own header and of that of an object, and bytes that are searched.
_HEAP, _HEADER_BYTES, _SEARCHED_BYTES = b"GCOL\x01\0\0\0", 16, 1 << 28


class _Header:
    """The header of a file of version 5, from which counts are read that the rest of the file can hold."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 4

    def skip(self, nbytes: int) -> None:
        """Go on behind so many bytes, filled up to a multiple of four."""
        self._at += -(-nbytes // 4) * 4
        if self._at > len(self._content):
            raise ValueError("its header ends early")

    def count(self) -> int:
        """A count of things of which each takes a byte or more."""
        (found,) = struct.unpack_from(">Q", self._content.ljust(self._at + 8, b"\0"), self._at)
        self.skip(8)
        if found > len(self._content) - self._at:
            raise ValueError(f"its header counts {found} things, for which it is too short")
        return int(found)

    def entries(self, mark: int) -> int:
        """The number of entries of a list."""
        self.skip(4)
        found = int.from_bytes(self._content[self._at - 4 : self._at], "big")
        entries = self.count()
        if found != (mark if entries else found) or found not in (0, mark):
            raise ValueError("its header is out of order")
        return entries

    def attributes(self) -> None:
        """Go on behind a list of attributes."""
        for _ in range(self.entries(_ATTRIBUTES)):
            self.skip(self.count())
            self.skip(4)
            kind = int.from_bytes(self._content[self._at - 4 : self._at], "big")
            self.skip(self.count() * _VALUE_BYTES.get(kind, 1))


def check_header(content: bytes) -> None:
    """Raise ``ValueError`` where the header of a file of version 5 counts more than the file holds."""
    header = _Header(content)
    header.skip(8)  # the number of records
    for _ in range(header.entries(_DIMENSIONS)):
        header.skip(header.count())
        header.skip(8)
    header.attributes()
    for _ in range(header.entries(_VARIABLES)):
        header.skip(header.count())
        header.skip(8 * header.count())
        header.attributes()
        header.skip(4 + 8 + 8)  # type, bytes, place


def check_heaps(file: BinaryIO) -> None:
    """Raise ``ValueError`` for a file of HDF5 with a damaged global heap within its first 256 MiB."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(_HEAP, 0, _SEARCHED_BYTES)
        while at >= 0:
            _check_heap(content, at)
            at = content.find(_HEAP, at + len(_HEAP), _SEARCHED_BYTES)


def _check_heap(content: mmap.mmap, start: int) -> None:
    """Walk through the objects of a heap: each takes bytes, and none more than are left."""
    if start + _HEADER_BYTES > len(content):
        return
    (size,) = struct.unpack_from("<Q", content, start + 8)
    at, stop = start + _HEADER_BYTES, start + size
    if stop > len(content):
        return  # which HDF5 finds out
    while at + _HEADER_BYTES <= stop:
        number, nbytes = struct.unpack_from("<H6xQ", content, at)
        taken = nbytes if number == 0 else _HEADER_BYTES + -(-nbytes // 8) * 8  # number 0 is what is free, its header with it
        if taken < _HEADER_BYTES or taken > stop - at:
            raise ValueError(f"the heap at byte {start} has an object of {nbytes} bytes at byte {at}")
        at += taken
