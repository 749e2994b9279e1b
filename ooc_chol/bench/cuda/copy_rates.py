"""Rates of copies: host memory to and from each GPU, and from GPU to GPU, alone and all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import cupy as cp

from ooc_chol.bench.cuda.devices import peer_access
from ooc_chol.hardware.cuda import device_number

_runtime = cp.cuda.runtime
#: Bytes of one copy, and copies of one measurement: 4 GiB pass in each direction.
COPY_BYTES = 256 << 20
COPIES = 16


class Copy(NamedTuple):
    """One direction of one link, ``"in"``, ``"out"`` or ``"peer"``; ``source`` and ``target`` are -1 where they are the host."""

    kind: str
    source: int
    target: int

    @property
    def name(self) -> str:
        """Name of the direction in results, such as ``"host->cuda:0"``."""
        source, target = (f"cuda:{number}" if number >= 0 else "host" for number in (self.source, self.target))
        return f"{source}->{target}"


@dataclass(frozen=True)
class _Buffers:
    """Memory that copies read and write: on one device, and page-locked on the host."""

    device_in: Any
    device_out: Any
    host_in: Any
    host_out: Any


def measure_links(devices: Sequence[str]) -> list[dict[str, Any]]:
    """Measure copies between host memory and each GPU, each way and both, and between GPUs; alone and at once.

    Page-locked memory, copies of :data:`COPY_BYTES`, each stream timed by events over :data:`COPIES` copies after one round that
    warms up. Needs 512 MiB of host memory a device; takes a few seconds.
    """
    numbers = [device_number(name) for name in devices]
    with peer_access(numbers), _allocated(numbers) as buffers:
        return [{"what": what, "devices": _devices(copies)} | _measure(buffers, copies) for what, copies in _plan(numbers)]


def _plan(numbers: Sequence[int]) -> Iterator[tuple[str, list[Copy]]]:
    """Measurements to take: each device alone, the first 2, 4, ... and all at once; peers by pairs, in a ring and all at once."""
    groups = [[number] for number in numbers]
    groups += [list(numbers[:count]) for count in (2, 4, 8, 16) if count < len(numbers)]
    groups += [list(numbers)] if len(numbers) > 1 else []
    for group in groups:
        copies_in, copies_out = [Copy("in", -1, number) for number in group], [Copy("out", number, -1) for number in group]
        yield "in", copies_in
        yield "out", copies_out
        yield "in and out", copies_in + copies_out
    pairs = [Copy("peer", one, other) for one in numbers for other in numbers if one != other]
    for pair in pairs:
        yield "peer", [pair]
    if len(numbers) > 2:
        yield "peer ring", [Copy("peer", one, other) for one, other in zip(numbers, [*numbers[1:], numbers[0]], strict=True)]
    if pairs:
        yield "peer all", pairs


def _measure(buffers: dict[int, _Buffers], copies: Sequence[Copy]) -> dict[str, Any]:
    """Measure copies that run at once: the rate of each, in GB/s."""
    streams = [_stream(copy) for copy in copies]
    for count in (1, COPIES):  # the first round warms up
        events = [_recorded(copy, stream) for copy, stream in zip(copies, streams, strict=True)]
        for _ in range(count):
            for copy, stream in zip(copies, streams, strict=True):
                _enqueue(buffers, copy, stream)
        ends = [_recorded(copy, stream) for copy, stream in zip(copies, streams, strict=True)]
        for end in ends:
            end.synchronize()
    milliseconds = [cp.cuda.get_elapsed_time(start, end) for start, end in zip(events, ends, strict=True)]
    rates = {copy.name: COPIES * COPY_BYTES / 1e6 / each for copy, each in zip(copies, milliseconds, strict=True)}
    return {"gigabytes_per_second": rates, "total_gigabytes_per_second": sum(rates.values())}


def _devices(copies: Sequence[Copy]) -> list[str]:
    """Names of the devices that take part."""
    return [f"cuda:{number}" for number in sorted({end for copy in copies for end in copy[1:]} - {-1})]


def _at(copy: Copy) -> int:
    """The device whose stream carries the copy."""
    return copy.target if copy.kind == "in" else copy.source


def _stream(copy: Copy) -> Any:
    """Make a stream for one copy, on the device that carries it."""
    with cp.cuda.Device(_at(copy)):
        return cp.cuda.Stream(non_blocking=True)


def _recorded(copy: Copy, stream: Any) -> Any:
    """An event in the copy's stream."""
    with cp.cuda.Device(_at(copy)):
        event = cp.cuda.Event(block=True)
        event.record(stream)
        return event


def _enqueue(buffers: dict[int, _Buffers], copy: Copy, stream: Any) -> None:
    """Enqueue one copy."""
    mine = buffers[_at(copy)]
    with cp.cuda.Device(_at(copy)):
        if copy.kind == "in":
            _runtime.memcpyAsync(mine.device_in.ptr, mine.host_in.ptr, COPY_BYTES, _runtime.memcpyHostToDevice, stream.ptr)
        elif copy.kind == "out":
            _runtime.memcpyAsync(mine.host_out.ptr, mine.device_out.ptr, COPY_BYTES, _runtime.memcpyDeviceToHost, stream.ptr)
        else:
            target = buffers[copy.target].device_in.ptr
            _runtime.memcpyPeerAsync(target, copy.target, mine.device_out.ptr, copy.source, COPY_BYTES, stream.ptr)


@contextmanager
def _allocated(numbers: Sequence[int]) -> Iterator[dict[int, _Buffers]]:
    """Buffers of every device, given back at the end."""
    buffers: dict[int, _Buffers] = {}
    try:
        for number in numbers:
            with cp.cuda.Device(number):
                device = (cp.cuda.Memory(COPY_BYTES) for _ in range(2))
                host = (cp.cuda.alloc_pinned_memory(COPY_BYTES) for _ in range(2))
                buffers[number] = _Buffers(*device, *host)
        yield buffers
    finally:
        buffers.clear()
        cp.get_default_pinned_memory_pool().free_all_blocks()
