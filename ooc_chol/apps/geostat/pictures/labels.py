"""Words, units and colours that pictures of one kind have in common."""

from __future__ import annotations

from dataclasses import dataclass

import ooc_chol.toolbox as tb

#: Of the palette of Okabe and Ito, which people of every colour vision tell apart.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#999999"

#: A colour and a marker for each of several curves, which are so told apart without colours too.
STYLES = ((BLUE, "o"), (VERMILION, "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"))


@dataclass(frozen=True)
class FigureWords:
    """Title, names and units that a figure shows.

    Parameters
    ----------
    title : str
        Above all.
    distance : str
        Unit of distances; empty when only the user knows.
    value : str
        Name of the values.
    value_unit : str
        Unit of the values; may be empty.
    """

    title: str
    distance: str = ""
    value: str = ""
    value_unit: str = ""

    __repr__ = tb.brief_repr


def semivariance_label(words: FigureWords) -> str:
    """The axis of semivariances: of which values, and in which unit where that is known."""
    unit = words.value_unit
    if unit:
        unit = f"{unit}²" if unit.isalpha() else f"({unit})²"
    return _with_unit(f"semivariance of {words.value or 'the values'}", unit)


def distance_label(words: FigureWords, what: str = "distance") -> str:
    """The axis of distances, or of another length, with its unit where that is known."""
    return _with_unit(what, words.distance)


def _with_unit(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name
