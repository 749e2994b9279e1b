"""Signals that end a process, as interrupts of its main thread: what is half written is removed on the way out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: What the command line says when a signal has ended a command.
ENDINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


class SignalInterrupt(KeyboardInterrupt):
    """A signal that ends the process, treated as Ctrl-C is."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number
        super().__init__(number.name)


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Raise :class:`SignalInterrupt` for SIGTERM and SIGHUP inside the block.

    It does so only on the main thread, which alone may set handlers, and not for a signal that is ignored, as ``nohup`` does with
    SIGHUP, or that the process handles itself.
    """
    taken: list[signal.Signals] = []
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    taken.append(number)
                    signal.signal(number, _interrupt)
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, _: FrameType | None) -> None:
    raise SignalInterrupt(signal.Signals(number))
