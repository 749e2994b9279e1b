"""Errors of the application, and those that a step after an expensive one may meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import ooc_chol as oc


class MissingExtraError(oc.OocCholError, ImportError):
    """A part of the application needs a package that is not installed; the message names the extra that brings it."""


class SingularCovarianceError(oc.NotPositiveDefiniteError):
    """The covariance matrix of some observations is not positive definite in floating point, and these rows make it so.

    Parameters
    ----------
    rows : tuple of int
        Numbers of observations as the text calls them: rows of the caller's arrays counted from zero, or lines of a file. Two
        whose places coincide; or the one that has no variance left, then the two that are most alike.
    minor : int
        Order of the first leading minor that is not positive definite, in the order of the matrix.
    problem : str
        The text.
    """

    def __init__(self, rows: tuple[int, ...], minor: int, problem: str) -> None:
        super().__init__(minor, (0, 0))
        self.rows, self.problem = rows, problem
        self.args = (problem,)

    def __reduce__(self) -> tuple[type, tuple[tuple[int, ...], int, str]]:
        return type(self), (self.rows, self.minor, self.problem)


class NeighbourhoodError(oc.NotPositiveDefiniteError):
    """The covariance matrix of the data around some sites is not positive definite in floating point.

    Parameters
    ----------
    datum : int
        The first of the observations that has no variance left given others, counted from zero in the caller's order.
    place : tuple of float
        Its coordinates.
    minor : int
        Order of the first leading minor that is not positive definite.
    name : str, optional
        Name at the caller's, such as a line of a file.
    """

    def __init__(self, datum: int, place: tuple[float, ...], minor: int, name: str | None = None) -> None:
        super().__init__(minor, (0, 0))
        self.datum, self.place, self.name = datum, place, name or f"observation {datum} (counted from zero)"
        self.args = (
            f"the covariance matrix of neighbouring data is not positive definite: {self.name}, at {place_text(place)}, has no "
            f"variance left given {minor - 1} others; is it there twice, or the field too smooth for a nugget of zero? Fit with "
            "a nugget, or take fewer neighbours (--neighbours)",
        )

    def __reduce__(self) -> tuple[type, tuple[int, tuple[float, ...], int, str]]:
        return type(self), (self.datum, self.place, self.minor, self.name)


def place_text(place: Iterable[float]) -> str:
    """Coordinates for a message."""
    return f"({', '.join(f'{x:.10g}' for x in place)})"


class UnknownLevelError(oc.OocCholError, ValueError):
    """A factor has levels at new places that the observations have not, so that nothing is known of their effect.

    Parameters
    ----------
    column : str
        The factor's column.
    unknown : sequence of str
        Levels without an observation.
    levels : sequence of str
        Levels of the observations.
    """

    def __init__(self, column: str, unknown: Sequence[str], levels: Sequence[str]) -> None:
        self.column, self.unknown, self.levels = column, tuple(unknown), tuple(levels)
        named, there = (
            f"{', '.join(map(repr, one[:9]))}{', ...' if len(one) > 9 else ''}" for one in (self.unknown, self.levels)
        )
        super().__init__(
            f"the factor {column!r} has the level{'s' * (len(self.unknown) > 1)} {named}, but was fitted with {there}: leave out "
            "these places, or fit with observations of that level"
        )


#: What may fail after a search and must not take its estimate with it: too little memory, a disk, a device, numbers. Faults of
#: the program itself (``AttributeError``, ``AssertionError``, ...) are none of them.
STEP_ERRORS: tuple[type[Exception], ...] = (oc.OocCholError, MemoryError, OSError, ValueError, RuntimeError)
