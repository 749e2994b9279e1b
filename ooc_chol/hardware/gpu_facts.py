"""Facts of a GPU by its driver, for nominal rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuFacts:
    """A GPU as its driver describes it; a driver that does not tell a number gives 0."""

    model: str  #: Model name, such as ``"NVIDIA H200"``
    capability: tuple[int, int]  #: Compute capability
    processors: int  #: Multiprocessors
    clock_hz: float  #: Highest clock of these
    memory_bytes_per_second: float  #: Of its own memory, by clock and width of the bus
