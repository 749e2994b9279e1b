"""What kernels on the host ask of its streams: to run a function in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from ooc_chol.interfaces import AbstractStream


class HostStream(Protocol):
    """What kernels need of a stream of the host device, or of what a test hands in."""

    def enqueue(self, operation: Callable[[], None]) -> None:
        """Run ``operation`` on the stream's thread behind all earlier ones; an exception becomes the stream's error."""


def enqueue(stream: AbstractStream, operation: Callable[[], None]) -> None:
    """Run ``operation`` on the thread of ``stream``, a stream of the host device, behind all earlier ones."""
    cast(HostStream, stream).enqueue(operation)
