"""Memory of the host that is asked for while devices still compute: the system takes a second for 4 GB that are new."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.memory.pages import touch
from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.process.threads import OwnThread, start

#: Bytes from which on it is worth a thread; those that a thread asks for in one go; and threads.
LEAST_BYTES = 1 << 28
_PIECE_BYTES, _THREADS = 1 << 24, 8


@final
class EarlyArray:
    """An array that is new, or a given one, whose pages threads touch until it is taken or closed."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], array: NDArray[Any] | None = None) -> None:
        self.shape, self.dtype = shape, dtype
        self._array: NDArray[Any] | None = np.empty(shape, dtype) if array is None else array
        self._is_over = False
        self._thread = OwnThread(self._touch_all, (self._array.reshape(-1).view(np.uint8),), "pages")
        start(self._thread)

    def take(self) -> NDArray[Any]:
        """The array, which nobody writes to any more; once."""
        self.close()
        found, self._array = self._array, None
        assert found is not None
        return found

    def close(self) -> None:
        """Let threads end, and wait for them."""
        self._is_over = True
        self._thread.wait()

    def _touch_all(self, numbers: NDArray[np.uint8]) -> None:
        pieces = [numbers[at : at + _PIECE_BYTES] for at in range(0, len(numbers), _PIECE_BYTES)]
        with closing(ThreadTeam(max(1, min(_THREADS, cores() - 1)))) as team:
            team.run([partial(self._touch, piece) for piece in pieces])

    def _touch(self, piece: NDArray[np.uint8]) -> None:
        if not self._is_over:
            touch(piece)
