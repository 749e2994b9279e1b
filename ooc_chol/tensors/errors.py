"""Errors of imputation, beside those that all of ooc_chol has."""

from __future__ import annotations

from ooc_chol.errors import OocCholError


class NonFiniteTensorError(OocCholError, ValueError):
    """An entry of a tensor that must be a finite number is none.

    Parameters
    ----------
    place : str
        Which, such as ``"X[3, 0, 7]"``.
    held : str
        What stands there.
    advice : str
        What the user can do, as the end of the message.
    """

    def __init__(self, place: str, held: str, advice: str) -> None:
        self.place = place
        self.held = held
        self.advice = advice
        super().__init__(f"{place} is {held}; {advice}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.place, self.held, self.advice)


class ImputationWarning(UserWarning):
    """An imputation tells less than it seems to: the message names the slices, or says what was not done."""

    __repr__ = OocCholError.__repr__
