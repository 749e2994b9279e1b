"""Interface of the host's streams to its kernels: to run a function in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from ooc_chol.interfaces import AbstractStream


class HostStream(Protocol):
    """Interface of a stream of the host device to kernels, or of one that a test hands in."""

    def enqueue(self, operation: Callable[[], None]) -> None:
        """Run ``operation`` on the stream's thread behind all earlier ones; an exception becomes the stream's error."""


def enqueue(stream: AbstractStream, operation: Callable[[], None]) -> None:
    """Run ``operation`` on the thread of ``stream``, a stream of the host device, behind all earlier ones."""
    cast(HostStream, stream).enqueue(operation)
