"""What a fit tells while it runs: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import shutil
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TextIO

from tqdm import tqdm

from ooc_chol.apps.geostat.covariance import Matern

_REFRESH_SECONDS = 0.1


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of the profile log-likelihood on all observations.

    Parameters
    ----------
    smoothness, range, nugget_ratio : float
        Where.
    loglik : float
        The value; minus infinity when the correlation matrix was not positive definite.
    seconds : float
        Wall-clock time.
    """

    smoothness: float
    range: float
    nugget_ratio: float
    loglik: float
    seconds: float


class AbstractFitProgress(ABC):
    """Told of every evaluation of a fit."""

    @abstractmethod
    def evaluation_started(self, correlation: Matern) -> None:
        """Hear that an evaluation at this correlation model (variance 1, nugget ratio) begins."""

    @abstractmethod
    def advanced(self, done: int, total: int, seconds: float) -> None:
        """Hear how far its factorization is; called from any thread."""

    @abstractmethod
    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Hear the value."""

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal tidy; a second call does nothing."""


class SilentProgress(AbstractFitProgress):
    """Says nothing."""

    def evaluation_started(self, correlation: Matern) -> None:
        """Say nothing."""

    def advanced(self, done: int, total: int, seconds: float) -> None:
        """Say nothing."""

    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Do nothing."""


class LineProgress(AbstractFitProgress):
    """One plain line per evaluation, for logs and pipes.

    Parameters
    ----------
    stream : text file
        Where the lines go.
    unit : str
        Unit of distances, such as ``"km"``; may be empty.
    """

    def __init__(self, stream: TextIO, unit: str = "") -> None:
        self._stream = stream
        self._unit = unit
        self._count = 0
        self._best = -math.inf

    def evaluation_started(self, correlation: Matern) -> None:
        """Say nothing yet."""

    def advanced(self, done: int, total: int, seconds: float) -> None:
        """Say nothing: a log needs no motion."""

    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Write the line."""
        self._count += 1
        self._best = max(self._best, evaluation.loglik)
        where = describe(evaluation.smoothness, evaluation.range, evaluation.nugget_ratio, self._unit)
        value = f"loglik {evaluation.loglik:.3f}" if math.isfinite(evaluation.loglik) else "not positive definite"
        print(
            f"evaluation {self._count}: {where}: {value}, best {self._best:.3f}, {evaluation.seconds:.2f} s",
            file=self._stream,
            flush=True,
        )

    def close(self) -> None:
        """Do nothing: every line is complete."""


class _Bar(tqdm):  # type: ignore[misc]
    """A bar that starts no thread of its own: it is refreshed by what it shows."""

    monitor_interval = 0


class TerminalProgress(AbstractFitProgress):
    """One live line: which evaluation, best log-likelihood so far, parameters now, how far and how long to go.

    Parameters
    ----------
    stream : text file
        The terminal.
    unit : str
        Unit of distances; may be empty.
    """

    def __init__(self, stream: TextIO, unit: str = "") -> None:
        self._unit = unit
        self._count = 0
        self._best = -math.inf
        self._spent = 0.0
        self._shown = 0.0
        size = shutil.get_terminal_size()  # tqdm's own guess shows nothing on a terminal that does not know its size
        self._bar = _Bar(
            total=1,
            file=stream,
            leave=False,
            ncols=size.columns,
            nrows=size.lines,
            smoothing=0,
            bar_format="{desc} {percentage:3.0f}% |{bar:8}| {remaining} left{postfix}",
        )

    def evaluation_started(self, correlation: Matern) -> None:
        """Begin the bar of this evaluation."""
        self._count += 1
        self._bar.reset(total=1)
        where = describe(correlation.smoothness, correlation.range, correlation.nugget, self._unit)
        best = f"best {self._best:.2f}, now " if math.isfinite(self._best) else ""
        self._bar.set_description_str(f"evaluation {self._count}: {best}{where}", refresh=False)
        self._bar.refresh()

    def advanced(self, done: int, total: int, seconds: float) -> None:
        """Move the bar, at most ten times a second."""
        now = time.perf_counter()
        if now - self._shown < _REFRESH_SECONDS:
            return
        self._shown = now
        self._bar.total, self._bar.n = total, done
        self._bar.refresh()

    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Remember the best value, and show the mean time."""
        self._best = max(self._best, evaluation.loglik)
        self._spent += evaluation.seconds
        self._bar.set_postfix_str(f"{self._spent / self._count:.2f} s each", refresh=True)

    def close(self) -> None:
        """Clear the line."""
        self._bar.close()


def progress_for(stream: TextIO, unit: str = "") -> AbstractFitProgress:
    """The live line on a terminal, plain lines otherwise.

    Parameters
    ----------
    stream : text file
        Usually ``sys.stderr``.
    unit : str
        Unit of distances; may be empty.

    Returns
    -------
    AbstractFitProgress
        To be closed at the end.
    """
    return TerminalProgress(stream, unit) if stream.isatty() else LineProgress(stream, unit)


def describe(smoothness: float, length: float, nugget_ratio: float, unit: str = "") -> str:
    """Parameters in a few words.

    Parameters
    ----------
    smoothness, length, nugget_ratio : float
        ``nu``, the range, and ``tau2 / sigma2``.
    unit : str
        Unit of the range; may be empty.

    Returns
    -------
    str
        Such as ``"nu 1.5, range 0.6 km, nugget ratio 0.0028"``.

    Examples
    --------
    >>> describe(1.5, 0.6, 0.0028, "km")
    'nu 1.5, range 0.6 km, nugget ratio 0.0028'
    """
    return f"nu {smoothness:g}, range {length:.4g}{' ' + unit if unit else ''}, nugget ratio {nugget_ratio:.3g}"
