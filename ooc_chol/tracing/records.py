"""One record for each operation of a run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar, final, overload

from ooc_chol.display.prints import brief_repr
from ooc_chol.files.inputs import input_bytes
from ooc_chol.files.outputs import FileKind

_Item = TypeVar("_Item")

#: Files that a new trace may replace: the first packet of every one numbers the categories of records, from ``fetch`` on.
TRACE_FILES = FileKind(
    "trace of ooc_chol", b"\x08\x01\x12\x05fetch", anywhere=True, endings=(".pftrace", ".perfetto-trace"), gzipped=True
)

#: Bytes with which a file begins that gzip wrote, and those at its start that are searched for the mark.
_GZIP, _SEARCHED_BYTES = b"\x1f\x8b", 65536
#: Bytes of a trace, compressed or not, which are those of the largest message of protobuf; and by how much one can be compressed
#: at most; ours by 5 times.
_MOST_BYTES, _MOST_COMPRESSED = (1 << 31) - 1, 50


def read_trace_file(path: Path) -> bytes:
    """Read a trace as it is stored, compressed with gzip or not; raise ``ValueError`` for any other file."""
    content = input_bytes(path, _MOST_BYTES)
    head = content[:_SEARCHED_BYTES]
    if head[:2] == _GZIP:
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _SEARCHED_BYTES)
        except zlib.error:
            head = b""
    if TRACE_FILES.mark not in head:
        raise ValueError(f"{path} is no {TRACE_FILES.name}")
    return content


def decompressed(content: bytes) -> bytes:
    """Undo gzip, where the content of a trace file is compressed; ``zlib.error`` or ``EOFError`` where it is damaged."""
    if content[:2] != _GZIP:
        return content
    parts, left = [], content
    room = min(_MOST_BYTES, len(content) * _MOST_COMPRESSED)
    while left:  # members one after the other
        member = zlib.decompressobj(wbits=31)
        parts.append(member.decompress(left, room + 1))
        room -= len(parts[-1])
        if room < 0:
            raise zlib.error(f"it holds more than {_MOST_COMPRESSED} times as many bytes as it has")
        if not member.eof:
            raise EOFError("it ends early")
        left = member.unused_data.lstrip(b"\0")  # with which some programs fill up
    return b"".join(parts)


class StreamRole(NamedTuple):
    """Role of a stream on its device, named by whoever made the program.

    Parameters
    ----------
    place : int
        Place at which it is shown among the device's streams; those of equal place are shown by name.
    computes : bool
        True if it runs kernels: a device stands still when none of these streams runs anything.
    """

    place: int
    computes: bool


class TraceRecord(NamedTuple):
    """One operation of one stream, measured or predicted.

    Parameters
    ----------
    step : int
        Index of the step in the program of its device; unique on that device.
    device, stream : str
        Names such as ``"host:0"`` and ``"copy-in"``, ``"compute"`` or ``"copy-out"``. A stream runs one operation at a time.
    kind : str
        ``"fetch"``, ``"generate"``, ``"compute"``, ``"write"`` or ``"pull"``.
    label : str
        Text for a person, such as ``"GEMM (3, 1) k=0"`` or ``"fetch (3, 1)"``.
    block : str
        Name of the block that the operation reads or makes, such as ``"L(3, 1)v2"``.
    fmt : str
        Storage format of the block, such as ``"fp64"``.
    nbytes : int
        Bytes that crossed a link; 0 for ``"compute"`` and ``"generate"``.
    link : str
        Name such as ``"source->host:0"``, ``"store->host:0"`` or ``"host:0->store"``; empty when no bytes crossed a link.
    flops : int
        Floating-point operations that were executed.
    start_ns, end_ns : int
        Nanoseconds of ``time.perf_counter_ns``; predicted records start at 0.
    after : tuple of (str, int)
        ``(device, step)`` of the operations on other streams or devices that this one had to wait for.
    resident_bytes : int
        Bytes resident on the device after the step, as planned.
    role : StreamRole
        Role of the stream, the same in all its records.
    work : str
        Sort of work of a ``"compute"``, ``"product"`` or ``"panel"``, which have colours of their own; empty for any other.
    """

    step: int
    device: str
    stream: str
    kind: str
    label: str
    block: str
    fmt: str
    nbytes: int
    link: str
    flops: int
    start_ns: int
    end_ns: int
    after: tuple[tuple[str, int], ...]
    resident_bytes: int
    role: StreamRole
    work: str = ""

    def __repr__(self) -> str:
        return brief_repr(self)


@final
class LazySequence(Sequence[_Item]):
    """Records or times that are made when somebody looks at them: a run has one for each step, and few ask."""

    def __init__(self, make: Callable[[], Iterable[_Item]]) -> None:
        self._make: Callable[[], Iterable[_Item]] | None = make
        self._items: tuple[_Item, ...] = ()

    @property
    def _made(self) -> tuple[_Item, ...]:
        make = self._make
        if make is not None:
            self._items = tuple(make())
            self._make = None
        return self._items

    @property
    def made(self) -> int | None:
        """How many there are; None as long as nobody looked at them."""
        return None if self._make is not None else len(self._items)

    def __repr__(self) -> str:
        return "<what nobody looked at>" if self.made is None else f"<{self.made} of them>"

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, at: int) -> _Item: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[_Item, ...]: ...

    def __getitem__(self, at: int | slice) -> _Item | tuple[_Item, ...]:
        return self._made[at]

    def __iter__(self) -> Iterator[_Item]:
        return iter(self._made)

    def __eq__(self, other: object) -> bool:
        return self._made == (other._made if isinstance(other, LazySequence) else other)

    def __hash__(self) -> int:
        return hash(self._made)

    def __reduce__(self) -> tuple[type[tuple[_Item, ...]], tuple[tuple[_Item, ...]]]:
        """As the records themselves: what makes them stays in the process."""
        return tuple, (self._made,)
