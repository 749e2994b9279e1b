"""Tables: reading CSV with named columns, writing CSV and JSON. What is wrong is named with file, line and column."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.crs import Crs
from ooc_chol.apps.geostat.data.csv_words import Remembered, number_of, quoted_cells, worded
from ooc_chol.apps.geostat.data.endings import GEOPACKAGE, NETCDF, PARQUET, RESULT, TABLE, check_ending
from ooc_chol.apps.geostat.data.rows import Rows

#: Cells, in lower case, that mean "no value"; a row with one in a column that is used is dropped and counted.
MISSING = frozenset({"", "na", "nan", "n/a", "null", "none"})

#: Most characters of a line of a table: a hundred thousand columns, and as many as a reader of CSV takes for a cell.
_MOST_CHARACTERS = 8 << 20
#: Bytes of a file in JSON: a result has a thousandth of that.
_MOST_BYTES = 64 << 20
#: Arrays of a column that are there at once while a table is made of it.
_COPIES = 3
#: Most columns that a message names, and most characters of each, or of a cell.
_MOST_NAMED, _SHOWN = 40, 60

#: Lines that are looked at for quotation marks.
_LOOKED_AT = 100

#: Delimiters looked for in the header line; without any of them the columns are separated by blanks.
_DELIMITERS = (",", ";", "\t", "|")

#: Blanks between a closing quotation mark and what ends a cell.
_BEHIND_MARK = re.compile(r'" +(?=[,;\t|\r\n]|$)')


@dataclass(frozen=True, eq=False)
class Table:
    """The columns that were asked for, without the rows in which one of them is missing."""

    source: str  #: File name, for messages
    columns: Mapping[str, NDArray[np.float64]]  #: Values by column name
    dropped: int  #: Rows left out because a value is missing
    units: Mapping[str, str] = field(default_factory=dict)  #: Units of columns, where the file tells them
    crs: Crs | None = None  #: Coordinate reference system of the columns read, where the file tells it
    notes: tuple[str, ...] = ()  #: What a user should hear about the file
    texts: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)  #: Columns of words or codes, of those that may be
    rows: Rows | None = field(default=None, repr=False)  #: Where each row is in the file

    __repr__ = tb.brief_repr

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(next(iter((*self.columns.values(), *self.texts.values()))))

    @property
    def all_columns(self) -> dict[str, NDArray[Any]]:
        """Columns of numbers and of words."""
        return {**self.columns, **self.texts}

    def stack(self, names: Sequence[str]) -> NDArray[np.float64]:
        """The named columns side by side.

        Returns (n, k): a new array.
        """
        return np.column_stack([self.columns[name] for name in names]) if names else np.empty((self.n, 0))


def read_table(
    path: str | os.PathLike[str], names: Sequence[str], *, optional: Sequence[str] = (), texts: Sequence[str] = ()
) -> Table:
    """Read named columns of a text file with a header line.

    Parameters
    ----------
    path : path
        UTF-8 text; the header line tells the delimiter: comma, semicolon, tab, vertical bar or blanks.
    names : sequence of str
        Columns to read; the others may hold anything.
    optional : sequence of str
        Columns to read if they are there; a missing value in one of them is NaN and drops no row.
    texts : sequence of str
        Those of ``names`` that may hold words; so does one of numbers in quotation marks, where other columns of numbers are in
        none.

    Returns
    -------
    Table
        The columns as float64, and those of words as they are.

    Raises
    ------
    ValueError
        The name ends as that of another kind of file. Or a column is not there, a cell is not a finite number, a row is short, or
        longer than the header, a quotation mark is not closed, or no complete row is left. The text names file, line and column.
    OSError
        The file cannot be read.
    """
    file = Path(path)
    if file.suffix.lower() in (*NETCDF, ".nc4", *GEOPACKAGE, *PARQUET):
        raise ValueError(f"{file.name} is no text by its ending; load_table reads it, and text too")
    try:
        with closing(_text_lines(file)) as lines:
            return _read(lines, file.name, list(dict.fromkeys(names)), optional, texts)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file.name} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _text_lines(file: Path) -> Generator[str, None, None]:
    """Lines as they are, of whatever ends, none longer than a table has."""
    with tb.input_file(file, pipes=True) as binary, TextIOWrapper(binary, encoding="utf-8-sig", newline="") as stream:
        while line := stream.readline(_MOST_CHARACTERS):
            if len(line) == _MOST_CHARACTERS:
                raise ValueError(f"{file.name} has a line of more than {_MOST_CHARACTERS} characters: it is no table")
            yield line


def complete_rows(
    source: str,
    columns: Mapping[str, NDArray[np.float64]],
    names: Sequence[str],
    *,
    units: Mapping[str, str] | None = None,
    crs: Crs | None = None,
    notes: tuple[str, ...] = (),
    texts: Mapping[str, NDArray[np.str_]] | None = None,
) -> Table:
    """Drop and count the rows in which a column of ``names`` has no value; what binary files have in common."""
    for name, column in columns.items():
        if np.isinf(column).any():
            row = int(np.argmax(np.isinf(column)))
            raise ValueError(f"{source} row {row + 1}, column {name!r}: {float(column[row])!r} is not finite")
    words = texts or {}
    complete = np.logical_and.reduce([words[name] != "" if name in words else np.isfinite(columns[name]) for name in names])
    dropped = int(np.count_nonzero(~complete))
    if not complete.any():
        raise ValueError(_no_rows(source, names, dropped))
    kept = {name: column[complete] for name, column in columns.items()}
    told = {k: unit for k, unit in (units or {}).items() if k in kept and unit}
    rows = Rows(np.flatnonzero(complete) + 1, "row", f"of {source}")
    return Table(source, kept, dropped, told, crs, notes, {name: column[complete] for name, column in words.items()}, rows)


def check_table_room(source: str, rows: int, columns: int) -> None:
    """Raise ``BudgetError`` where a file promises more numbers than there is memory: compressed ones need not be in it."""
    advice = "read fewer rows or columns, or write those that are needed into a file of their own"
    tb.check_room(_COPIES * 8 * rows * columns, f"memory for {rows:,} rows of {columns} columns of {source}", advice)


class MissingColumnError(ValueError):
    """A file has not the one column of a name that is asked for; ``there`` are the names of its columns."""

    def __init__(self, source: str, problem: str, name: str, there: Sequence[str]) -> None:
        self.there = tuple(there)
        named = ", ".join(f"{one:.{_SHOWN}}" for one in there[:_MOST_NAMED])
        more = f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
        super().__init__(f"{source} {problem} {name!r:.{_SHOWN}}; its columns are: {named}{more}")


def check_columns(source: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    """Raise :class:`MissingColumnError` unless every column is there."""
    for name in wanted:
        if name not in there:
            raise MissingColumnError(source, "has no column", name, there)


def write_table(path: str | os.PathLike[str], columns: Mapping[str, NDArray[np.float64]], *, replace: bool = False) -> None:
    """Write columns as CSV, numbers in the shortest form that reads back exactly; the file appears complete or not at all."""
    check_ending(path, TABLE, "tables")
    with text_file(path, replace=replace) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(map(repr, column.tolist()) for column in columns.values()), strict=True))


def write_json(
    path: str | os.PathLike[str], data: Mapping[str, Any], *, kind: tb.FileKind | None = None, replace: bool = False
) -> None:
    """Write plain data as JSON; the file appears complete or not at all."""
    check_ending(path, RESULT, "results")
    text = json.dumps(data, indent=2, allow_nan=False)
    with text_file(path, kind=kind, replace=replace) as stream:
        stream.write(text + "\n")


def json_files(form: str) -> tb.FileKind:
    """Files that :func:`write_json` wrote of data whose first key is ``format``."""
    return tb.FileKind(f"file of format {form!r}", f'{{\n  "format": {json.dumps(form)}'.encode())


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a JSON object."""
    file = Path(path)
    content = tb.input_bytes(file, _MOST_BYTES)
    try:
        data = tb.parse_json(content.decode())
    except ValueError as error:
        raise ValueError(f"{file.name} is not JSON: {error!s:.200}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{file.name} holds a {type(data).__name__}, not an object")
    return data


@contextmanager
def text_file(path: str | os.PathLike[str], *, kind: tb.FileKind | None = None, replace: bool = False) -> Iterator[TextIO]:
    """Open a text file that takes the place of ``path`` only when the block ends without an error."""
    with tb.output_file(path, kind=kind, replace=replace) as part, part.open("w", encoding="utf-8", newline="") as stream:
        yield stream


def _read(text: Iterator[str], source: str, names: list[str], optional: Sequence[str], texts: Sequence[str]) -> Table:
    """The table in an open file."""
    head = next(text, "")
    if not head.strip():
        raise ValueError(f"{source} begins with an empty line; its first line must name the columns")
    delimiter = max(_DELIMITERS, key=head.count) if any(d in head for d in _DELIMITERS) else " "
    first = iter([head.strip() if delimiter == " " else head])
    header = [name.strip() for _, cells in _records(first, delimiter, source, 0) for name in cells]
    wanted = names + [name for name in optional if name in header and name not in names]
    places = {name: _place(name, header, source) for name in wanted}
    numbers, words = ([name for name in wanted if (name in texts) == is_text] for is_text in (False, True))
    needed = len([name for name in numbers if name in names])
    remembered = Remembered(text)
    is_plain, where_numbers = bool(numbers) and not words, [places[name] for name in numbers]
    rows: list[list[float]] = []
    told: list[list[str]] = []
    lines: list[int] = []
    dropped, quoted = 0, [False] * len(header)
    for line, cells in _records(remembered if words else text, delimiter, source, 1):
        if is_plain and (plain := _plain_row(cells, where_numbers, len(header))) is not None:
            rows.append(plain)
            lines.append(line)
            continue
        if any(cell.strip() for cell in cells):
            if words and line <= _LOOKED_AT:
                marks = quoted_cells(remembered.take(), delimiter)
                quoted = [a or b for a, b in zip(quoted, marks, strict=True)] if len(marks) == len(quoted) else quoted
            where = f"{source} line {line}"
            _check_length(cells, len(header), where)
            row = _parse(cells, where_numbers, numbers, where)
            word = _words(cells, [places[name] for name in words], words, where)
            complete = not any(math.isnan(number) for number in row[:needed]) and all(word)
            rows += [row] * complete
            told += [word] * complete
            lines += [line] * complete
            dropped += not complete
        remembered.take()
    if not rows:
        raise ValueError(_no_rows(source, names, dropped))
    values = np.array(rows, dtype=np.float64)
    columns = {name: values[:, k] for k, name in enumerate(numbers)}
    candidates = {name: [word[k] for word in told] for k, name in enumerate(words)}
    marked = {name for name, place in places.items() if quoted[place]}
    found = worded(candidates, marked if not marked & set(numbers) else ())
    columns |= {name: np.array(cells, dtype=np.float64) for name, cells in candidates.items() if name not in found}
    return Table(source, columns, dropped, texts=found, rows=Rows(np.array(lines), "line", f"of {source}"))


def _records(lines: Iterator[str], delimiter: str, source: str, before: int) -> Iterator[tuple[int, list[str]]]:
    """Cells of each row, and the number of the line on which it ends, of a file with so many lines before."""
    tidy = (_BEHIND_MARK.sub('"', line) if '"' in line else line for line in lines)
    reader, line = csv.reader(tidy, delimiter=delimiter, skipinitialspace=True, strict=True), before
    try:
        for cells in reader:
            line = reader.line_num + before
            yield line, cells
    except csv.Error as error:
        problem = "a quotation mark is never closed, or closed within a cell"
        raise ValueError(f"{source} line {line + 1}: {problem} ({error})") from error


def _no_rows(source: str, names: Sequence[str], dropped: int) -> str:
    return f"{source} has no row with a value in every column used ({', '.join(names)}); {dropped} rows were dropped"


def _place(name: str, header: list[str], source: str) -> int:
    """Position of a column."""
    if header.count(name) != 1:
        problem = "has no column" if name not in header else "has more than one column"
        raise MissingColumnError(source, problem, name, header)
    return header.index(name)


def _plain_row(cells: list[str], places: list[int], most: int) -> list[float] | None:
    """Numbers of one row that has all of them, as almost all have; None of one that needs a closer look."""
    if len(cells) > most or "_" in "".join(cells):
        return None
    try:
        row = [float(cells[place]) for place in places]
    except (ValueError, IndexError):
        return None
    return row if math.isfinite(sum(row)) else None


def _parse(cells: list[str], places: list[int], names: list[str], where: str) -> list[float]:
    """Numbers of one row, NaN where one is missing."""
    texts = _cells(cells, places, names, where)
    return [parse_number(text, f"{where}, column {name!r}") for text, name in zip(texts, names, strict=True)]


def _words(cells: list[str], places: list[int], names: list[str], where: str) -> list[str]:
    """Words of one row, empty where one is missing."""
    return ["" if text.lower() in MISSING else text for text in _cells(cells, places, names, where)]


def _check_length(cells: list[str], most: int, where: str) -> None:
    """Refuse a row with more cells than the header, but for empty ones: no one knows which of them its names are of."""
    if any(cell.strip() for cell in cells[most:]):
        hint = "row names without a name? decimals with commas?"
        raise ValueError(f"{where} has {len(cells)} cells, but the header names {most} ({hint})")


def _cells(cells: list[str], places: list[int], names: list[str], where: str) -> list[str]:
    """Some cells of one row, which must be there."""
    if places and max(places) >= len(cells):
        raise ValueError(f"{where} has {len(cells)} cells, too few for column {names[places.index(max(places))]!r}")
    return [cells[place].strip() for place in places]


def parse_number(text: str, where: str) -> float:
    """The number in a cell of text, NaN where it means that there is none."""
    if text.lower() in MISSING:
        return math.nan
    try:
        number = number_of(text)
    except ValueError:
        hint = " (decimals are written with a point here)" if "," in text else ""
        raise ValueError(f"{where}: {text!r:.{_SHOWN}} is not a number{hint}") from None
    if not math.isfinite(number):
        raise ValueError(f"{where}: {text!r:.{_SHOWN}} is not finite")
    return number
