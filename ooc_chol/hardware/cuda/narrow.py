"""Device memory through which stored bytes of narrow formats pass on their way between the host and the slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from ooc_chol.errors import ScheduleError
from ooc_chol.interfaces import AbstractStream


@final
class NarrowBuffers:
    """Buffers for stored tiles, each of one stream.

    A stream's copies and kernels run in order, so that it may use its buffer for tile after tile without waiting: (1) a copy
    fills the buffer, a kernel widens from it, and the next copy starts when that kernel is done; (2) a kernel fills it, a copy
    empties it, and the next kernel starts when that copy is done.
    """

    def __init__(self, addresses: Sequence[int] = (), nbytes: int = 0) -> None:
        self._addresses = tuple(addresses)
        self._nbytes = nbytes
        self._of_stream: dict[int, int] = {}

    def of(self, stream: AbstractStream, nbytes: int) -> int:
        """Device address of the stream's buffer; the next free one at its first use."""
        if nbytes > self._nbytes:
            raise ScheduleError(f"a stored tile has {nbytes} bytes, but the buffers of narrow formats {self._nbytes} bytes each")
        key = id(stream)  # the device keeps its streams as long as these buffers
        if key not in self._of_stream:
            if len(self._of_stream) == len(self._addresses):
                taken = f"all {len(self._addresses)} buffers are taken"
                raise ScheduleError(f"stream {stream.name} copies tiles of narrow formats, but {taken}")
            self._of_stream[key] = self._addresses[len(self._of_stream)]
        return self._of_stream[key]
