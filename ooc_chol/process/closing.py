"""Closing at the end of a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class AbstractClosing(ABC):
    """Something that a ``with`` block closes at its end."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release what is held; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
