"""Errors of the application, and those that a step after an expensive one may meet."""

from __future__ import annotations

import ooc_chol as oc


class MissingExtraError(oc.OocCholError, ImportError):
    """A part of the application needs a package that is not installed; the message names the extra that brings it."""


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
    """

    def __init__(self, datum: int, place: tuple[float, ...], minor: int) -> None:
        super().__init__(minor, (0, 0))
        self.datum, self.place = datum, place
        self.args = (
            f"the covariance matrix of neighbouring data is not positive definite: observation {datum} (counted from zero), at "
            f"({', '.join(f'{x:.10g}' for x in place)}), has no variance left given {minor - 1} others; is it there twice, or "
            "the field too smooth for a nugget of zero? Fit with a nugget, or take fewer neighbours (--neighbours)",
        )

    def __reduce__(self) -> tuple[type, tuple[int, tuple[float, ...], int]]:  # type: ignore[override]
        return type(self), (self.datum, self.place, self.minor)


#: What may fail after a search and must not take its estimate with it: too little memory, a disk, a device, numbers. Faults of
#: the program itself (``AttributeError``, ``AssertionError``, ...) are none of them.
STEP_ERRORS: tuple[type[Exception], ...] = (oc.OocCholError, MemoryError, OSError, ValueError, RuntimeError)
