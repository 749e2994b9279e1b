"""Columns of a CSV file that may hold words: which of them do, and which cells stand in quotation marks."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray


class Remembered(Iterator[str]):
    """Lines on their way to a reader of CSV, which forgets quotation marks; what it has read of late is kept."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines, self._kept = lines, ""

    def __next__(self) -> str:
        line = next(self._lines)
        self._kept += line
        return line

    def take(self) -> str:
        """Lines since the last call."""
        kept, self._kept = self._kept, ""
        return kept


def quoted_cells(record: str, delimiter: str) -> list[bool]:
    """Which cells of a record stand in quotation marks."""
    quoted = r'"(?:[^"]|"")*"'
    if delimiter == " ":
        return [word.startswith('"') for word in re.findall(rf"{quoted}|[^\s\"]+", record)]
    mark = re.escape(delimiter)
    cells = re.findall(rf"(?:^|{mark})[ \t]*({quoted}|[^{mark}]*)", record.strip("\r\n"))
    return [cell.startswith('"') for cell in cells]


def worded(columns: dict[str, list[str]], quoted: Collection[str]) -> dict[str, NDArray[np.str_]]:
    """Columns of text: those in quotation marks where numbers are in none, and those with a cell that is no number."""
    return {name: np.array(cells, dtype=np.str_) for name, cells in columns.items() if name in quoted or not _numbers(cells)}


def number_of(text: str) -> float:
    """The number that a text is; ``ValueError`` where it is none, as of codes with underscores, which Python takes for digits."""
    if "_" in text:
        raise ValueError(f"{text!r:.60} is not a number")
    return float(text)


def _numbers(cells: list[str]) -> bool:
    try:
        return all(map(math.isfinite, map(number_of, cells)))
    except ValueError:
        return False
