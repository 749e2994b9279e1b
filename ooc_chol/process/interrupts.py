"""Interrupts that wait for the end of a step, so that nothing is left half done, or without an owner.

Python raises the interrupt of Ctrl-C on the main thread wherever that happens to be: also after a file was created, and before
the variable is set by which it would be removed. Creating something and taking it over are therefore one held step::

    with HeldInterrupts():
        file = create(path)
        owned.callback(file.discard)

A context manager creates what it owns in its ``__enter__``, which undoes that where the end of the step raises: between the
return of ``__enter__`` and the block no interrupt comes. Steps are short: they create and reserve, and compute nothing.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self, final

#: Signals that end a process, as far as it handles them.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@final
class HeldInterrupts:
    """Within the block the first signal waits until it is asked for; the second one does what it always does, at once.

    It does so only on the main thread, which alone may set handlers, and for signals that the process handles in Python. Within
    another such block it leaves them to that one.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._waiting: tuple[int, FrameType | None] | None = None
        self._is_holding = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            try:
                self._is_holding = True
                for number in _SIGNALS:
                    if callable(handler := signal.getsignal(number)) and not _is_held(handler):
                        self._before[number] = handler
                        signal.signal(number, self._hold)
            except BaseException:  # one signal is held already, another one is not
                self._put_back()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._put_back()
        if error is None:
            self.check()

    def take(self) -> KeyboardInterrupt | None:
        """The interrupt that waits, as the process's own handler raises it; None where there is none."""
        if self._waiting is None:
            return None
        (number, frame), self._waiting = self._waiting, None
        try:
            self._before[number](number, frame)
        except KeyboardInterrupt as error:
            return error
        return None

    def check(self) -> None:
        """Raise the interrupt that waits, if one does."""
        if (late := self.take()) is not None:
            raise late

    def _put_back(self) -> None:
        """Let all signals have their handlers again, though one that has it may raise meanwhile."""
        try:
            self._is_holding = False  # what is not put back yet hands signals on
            self._set_handlers()
        except BaseException:
            self._set_handlers()
            raise

    def _set_handlers(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._is_holding and self._waiting is None:
            self._waiting = number, frame
        else:
            self._before[number](number, frame)


def _is_held(handler: object) -> bool:
    """Tell whether a handler is that of a block which holds signals now."""
    owner = getattr(handler, "__self__", None)
    return isinstance(owner, HeldInterrupts) and owner._is_holding
