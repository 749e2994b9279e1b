"""Units of columns as files spell them."""

from __future__ import annotations

import re

#: Spellings, in lower case, without underscores and the plural's s.
_SPELLINGS = {
    **dict.fromkeys(("m", "metre", "meter"), "m"),
    **dict.fromkeys(("km", "kilometre", "kilometer"), "km"),
    **dict.fromkeys(("ft", "foot", "feet"), "ft"),
    **dict.fromkeys(("ftus", "us-ft", "us survey foot", "us survey feet"), "us-ft"),
    **dict.fromkeys(("deg", "degree", "degreeeast", "degreee", "degreenorth", "degreen"), "degree"),
    **dict.fromkeys(("s", "sec", "second"), "s"),
    **dict.fromkeys(("min", "minute"), "min"),
    **dict.fromkeys(("h", "hr", "hour"), "h"),
    **dict.fromkeys(("d", "day"), "d"),
}
_PLURAL = re.compile(r"(?<=metre|meter)s|(?<=degree|second|minute)s|(?<=hour)s|(?<=day|sec|min)s|(?<=hr)s")


def same_unit(one: str, other: str) -> bool:
    """Tell whether two units are one, in whatever spelling; of times their dates of reference, too."""
    return _normal(one) == _normal(other)


def _normal(unit: str) -> tuple[object, ...]:
    """A unit in one spelling, and what tells a date of reference from others: its numbers, and the sign of its zone."""
    amount, _, date = re.sub(r"\s+", " ", unit.strip()).partition(" since ")
    key = _PLURAL.sub("", amount.lower().replace("_", ""))
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", date)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return _SPELLINGS.get(key, amount), tuple(numbers), "-" in date.partition(":")[2]
