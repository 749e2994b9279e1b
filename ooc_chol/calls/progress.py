"""Progress of a call: a bar, or the caller's own function, which may end the call."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TextIO, TypeAlias, final

import numpy as np

from ooc_chol.errors import StoppedError

#: The option ``progress`` of every call: ``progress(done, total, seconds)``, both in the unit of the call; True ends the call.
Progress: TypeAlias = bool | Callable[[int, int, float], object] | None
#: ``reporter(done, total, seconds)``, both in units of the work, such as flops or entries.
ProgressReporter: TypeAlias = Callable[[int, int, float], None] | None


@final
class Display:
    """A text stream that shows nothing once its reader is gone, or was never there: what is shown must not end what is computed.

    Of a process without a standard stream (``2>&-``) Python has None.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.is_gone = False  #: Whether it refused something; it is not asked again then

    def write(self, text: str) -> None:
        """Write, as long as that works."""
        self._attempt(lambda stream: stream.write(text))

    def flush(self) -> None:
        """Flush, as long as that works."""
        self._attempt(lambda stream: stream.flush())

    def isatty(self) -> bool:
        """Return True where a person sees it."""
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _attempt(self, step: Callable[[TextIO], object]) -> None:
        if self._stream is not None and not self.is_gone:
            try:
                step(self._stream)
            except OSError:
                self.is_gone = True


def progress_reporter(progress: Progress, name: str = "cholesky", unit: str = "flop") -> AbstractContextManager[ProgressReporter]:
    """Make the function that a run reports to: none, the caller's, or a bar that is closed at the end of the block.

    Parameters
    ----------
    progress : bool, callable or None
        The option of the call.
    name, unit : str
        The call, and what it counts.

    Returns
    -------
    context manager
        Context of ``report(done, total, seconds)``, or of None. It raises :class:`~ooc_chol.errors.StoppedError` where the
        caller's function returns True.
    """
    return _NOBODY if progress is None or progress is False else _reporter(progress, name, unit)


def ends_call(answer: object) -> bool:
    """Tell whether the answer of a caller's function ends its call: True does, NumPy's too, and nothing else."""
    return isinstance(answer, bool | np.bool_) and bool(answer)


#: The reporter of who does not want to know.
_NOBODY: AbstractContextManager[ProgressReporter] = nullcontext(None)


@contextmanager
def _reporter(progress: Progress, name: str, unit: str) -> Iterator[ProgressReporter]:
    """The caller's function, or a bar."""
    if callable(progress):

        def tell(done: int, total: int, seconds: float) -> None:
            if ends_call(progress(done, total, seconds)):
                raise StoppedError(name, done, total, unit)

        yield tell
    elif progress is True:
        with _bar(name, unit, unit_scale=True) as bar:

            def show(done: int, total: int, seconds: float) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield show
    else:
        raise TypeError(f"progress is a {type(progress).__name__}; give True, False or a callable (done, total, seconds)")


#: ``show(done, note, seconds)``: work that is done, of which nobody knows how much there is, and words on how it goes.
OpenReporter: TypeAlias = Callable[[int, str, float], None] | None


@contextmanager
def open_reporter(progress: Progress, most: int, name: str, unit: str) -> Iterator[OpenReporter]:
    """Make the function that a run reports to of which nobody knows how much there is to do: a bar without an end, and a note.

    Parameters
    ----------
    progress : bool, callable or None
        The option of the call.
    most : int
        Most that there may be: the total of the caller's function.
    name, unit : str
        The call, and what it counts.

    Returns
    -------
    context manager
        Context of ``show(done, note, seconds)``, or of None.
    """
    if progress is True:
        with _bar(name, unit) as bar:

            def show(done: int, note: str, seconds: float) -> None:
                bar.set_postfix_str(note, refresh=False)
                bar.update(done - bar.n)
                bar.refresh()

            yield show
        return
    with progress_reporter(progress, name, unit) as told:
        yield None if told is None else lambda done, note, seconds: told(done, most, seconds)


#: Seconds between two lines in a file.
_LINE_SECONDS = 5.0


class _Lines:
    """Lines instead of a bar, for a file or a log: one now and then, the first once a call takes that long."""

    def __init__(self, stream: Display, name: str, unit: str) -> None:
        self._stream, self._name, self._unit = stream, name, unit
        self.n, self.total, self._note = 0, 0, ""
        self._began = self._told = time.monotonic()

    def set_postfix_str(self, note: str, refresh: bool = True) -> None:
        """Take words on how it goes."""
        self._note = note

    def update(self, done: int) -> None:
        """Count what was done since."""
        self.n += done
        self.refresh()

    def refresh(self) -> None:
        """Write a line, unless the last one is of just before."""
        now = time.monotonic()
        if now - self._told < _LINE_SECONDS:
            return
        self._told = now
        how_far = f"{self.n / self.total:.0%}" if self.total else f"{self.n} {self._plural()}"
        self._stream.write(", ".join(filter(None, [f"{self._name}: {how_far}", self._note, f"{now - self._began:.0f} s"])) + "\n")
        self._stream.flush()

    def _plural(self) -> str:
        return self._unit if self.n == 1 else self._unit + ("es" if self._unit.endswith("s") else "s")


@contextmanager
def _bar(name: str, unit: str, **how: Any) -> Iterator[Any]:
    """Show a bar where a person sees it, else lines."""
    stream = Display(sys.stderr)
    if not stream.isatty() and "ipykernel" not in sys.modules:  # a notebook shows a bar as a terminal does
        yield _Lines(stream, name, unit)
        return
    from tqdm import tqdm  # 20 ms that a run without a bar need not take

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread, which would be left running

    with Bar(file=stream, desc=name, unit=unit, leave=False, **how) as bar:
        yield bar
