"""Progress of a fit while it runs: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TextIO, TypeAlias, final

from tqdm import tqdm

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.covariances.azimuth import read_values
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance

_REFRESH_SECONDS = 0.1

#: Evaluations of which each has a line where there is no terminal; further on each tenth has one, each hundredth, ...
_MOST_LINES = 60

#: Seconds between two lines where there is no terminal.
_LINE_SECONDS = 1.0

#: Names of parameters where they are not just those of the model.
_WORDS = {"smoothness": "nu"}


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of the profile log-likelihood on all observations.

    Parameters
    ----------
    values : mapping of str to float
        Point of the evaluation: all parameters of the correlation function, and ``"nugget_ratio"``.
    loglik : float
        Log-likelihood; minus infinity when the correlation matrix was not positive definite.
    seconds : float
        Wall-clock time of the evaluation.
    """

    values: Mapping[str, float]
    loglik: float
    seconds: float

    __repr__ = tb.brief_repr

    @property
    def range(self) -> float:
        """The range, of a covariance function that has one."""
        return self.values["range"]

    @property
    def smoothness(self) -> float:
        """The smoothness, of a covariance function that has one."""
        return self.values["smoothness"]

    @property
    def nugget_ratio(self) -> float:
        """``tau2 / sigma2``."""
        return self.values["nugget_ratio"]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the value of a matrix that was not positive definite is null."""
        return {**self.values, "loglik": self.loglik if math.isfinite(self.loglik) else None, "seconds": self.seconds}


class AbstractFitProgress(ABC):
    """Told of every evaluation of a fit; a subclass, given to ``fit(progress=...)``, shows it where its user looks."""

    @abstractmethod
    def evaluation_started(self, correlation: AbstractCovariance) -> None:
        """Hear that an evaluation begins.

        Parameters
        ----------
        correlation : AbstractCovariance
            Model of variance 1 that is evaluated; its nugget is the ratio of nugget and variance.
        """

    @abstractmethod
    def advanced(self, done: int, total: int, seconds: float) -> None:
        """Hear how far the factorization of this evaluation is; called from any thread.

        Parameters
        ----------
        done, total : int
            Flops done, and flops in all.
        seconds : float
            Since the factorization began.
        """

    @abstractmethod
    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Hear the log-likelihood of the evaluation that began last.

        Parameters
        ----------
        evaluation : Evaluation
            Point, log-likelihood and seconds.
        """

    def remarked(self, text: str) -> None:  # noqa: B027  # subclasses from before there were remarks go on without them
        """Hear a remark on how the search goes on, and do nothing about it unless a subclass does.

        Parameters
        ----------
        text : str
            A sentence without its full stop.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal tidy; a second call does nothing."""


#: What a fit tells of itself while it runs: ``progress(done, total, seconds)`` counts evaluations.
FitProgress: TypeAlias = tb.Progress | AbstractFitProgress


class SilentProgress(AbstractFitProgress):
    """Says nothing."""

    def evaluation_started(self, correlation: AbstractCovariance) -> None:
        """Say nothing."""

    def advanced(self, done: int, total: int, seconds: float) -> None:
        """Say nothing."""

    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Do nothing."""


class LineProgress(AbstractFitProgress):
    """Plain lines for logs and pipes: at most one a second, of a long fit for each tenth evaluation, and the last one's.

    None any more once the stream fails, which ends no fit.
    """

    def __init__(self, stream: TextIO, unit: str = "", *, every_seconds: float = _LINE_SECONDS) -> None:
        self._stream: TextIO | None = stream
        self._unit = unit
        self._every_seconds = every_seconds
        self._count = 0
        self._best = -math.inf
        self._told = -math.inf
        self._waiting: str | None = None

    def evaluation_started(self, correlation: AbstractCovariance) -> None:
        """Say nothing yet."""

    def advanced(self, done: int, total: int, seconds: float) -> None:
        """Say nothing: a log needs no motion."""

    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Write the line of this evaluation, or keep it where the last one is not a second old."""
        self._count += 1
        self._best = max(self._best, evaluation.loglik)
        where = describe(evaluation.values, self._unit)
        value = f"loglik {evaluation.loglik:.3f}" if math.isfinite(evaluation.loglik) else "not positive definite"
        self._waiting = f"evaluation {self._count}: {where}: {value}, best {self._best:.3f}, {evaluation.seconds:.2f} s"
        if time.perf_counter() - self._told >= self._every_seconds and self._count % _every(self._count) == 0:
            self._tell()

    def remarked(self, text: str) -> None:
        """Write it, behind the line of the last evaluation."""
        self._tell()
        self._waiting = text
        self._tell()

    def close(self) -> None:
        """Write the line of the last evaluation, unless that was done."""
        self._tell()

    def _tell(self) -> None:
        """Write the line that waits, if any."""
        text, self._waiting, self._told = self._waiting, None, time.perf_counter()
        if text is not None and self._stream is not None:
            try:
                print(text, file=self._stream, flush=True)
            except OSError:  # whoever read this is gone, or the disk of the log is full
                self._stream = None


def _every(count: int) -> int:
    """Interval of evaluations that have a line, at this one: each up to 60, each tenth up to 600, and so on."""
    every = 1
    while count > _MOST_LINES * every:
        every *= 10
    return every


class _Bar(tqdm):  # type: ignore[misc]
    """A bar that starts no thread of its own: it is refreshed by what it shows."""

    monitor_interval = 0


class TerminalProgress(AbstractFitProgress):
    """One live line: which evaluation, best log-likelihood so far, parameters now, how far and how long to go."""

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

    def evaluation_started(self, correlation: AbstractCovariance) -> None:
        """Begin the bar of this evaluation."""
        self._count += 1
        self._bar.reset(total=1)
        where = describe({**correlation.values, "nugget_ratio": correlation.nugget}, self._unit)
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

    def remarked(self, text: str) -> None:
        """Write it above the line."""
        self._bar.write(text, file=self._bar.fp)

    def close(self) -> None:
        """Clear the line."""
        self._bar.close()


@final
class CountedProgress(AbstractFitProgress):
    """Counts evaluations for the caller's function; what it raises ends the fit, wherever in it that is."""

    def __init__(self, tell: Callable[[int, int, float], None], most: int) -> None:
        self._tell, self._most, self._done, self._start = tell, most, 0, time.perf_counter()
        self._failure: Exception | None = None

    def evaluation_started(self, correlation: AbstractCovariance) -> None:
        """Begin no evaluation once the function has ended the fit."""
        self.close()

    def advanced(self, done: int, total: int, seconds: float) -> None:
        """Say nothing: evaluations are counted."""

    def evaluation_finished(self, evaluation: Evaluation) -> None:
        """Call the function."""
        self._done += 1
        try:
            self._tell(self._done, max(self._most, self._done), time.perf_counter() - self._start)
        except Exception as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Raise what the function raised, where a step that may fail has taken it for a failure of its own."""
        if self._failure is not None:
            raise self._failure


@contextmanager
def fit_progress(asked: FitProgress, call: str, most: int) -> Iterator[AbstractFitProgress]:
    """The progress of a fit of so many evaluations at most: an object, a function that counts them, a line, or none."""
    if isinstance(asked, AbstractFitProgress):
        yield asked
    elif callable(asked):
        with tb.progress_reporter(asked, call, "evaluation") as tell:
            assert tell is not None, "there is a function to be told"
            with closing(CountedProgress(tell, most)) as counted:
                yield counted
    else:
        is_shown = tb.checked(progress=asked)["progress"] is True
        with closing(progress_for(sys.stderr) if is_shown else SilentProgress()) as progress:
            yield progress


def progress_for(stream: TextIO, unit: str = "") -> AbstractFitProgress:
    """The live line on a terminal, plain lines otherwise."""
    return TerminalProgress(stream, unit) if stream.isatty() else LineProgress(stream, unit)


def describe(values: Mapping[str, float], unit: str = "") -> str:
    """Parameters in a few words."""
    units = {"range": f" {unit}" if unit else ""}
    ordered = sorted(read_values(values).items(), key=lambda item: item[0] != "smoothness")
    return ", ".join(f"{_WORDS.get(name, name.replace('_', ' '))} {value:.4g}{units.get(name, '')}" for name, value in ordered)
