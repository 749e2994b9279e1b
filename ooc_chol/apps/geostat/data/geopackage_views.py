"""Views and computed columns of a GeoPackage, tried before GDAL meets them.

A view is a statement of SQL in the file: it may have rows without end, or count for ever, in a file of a few kilobytes.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

#: Instructions of SQLite between two looks; those that any file may take, half a second, and those for each of its bytes.
_INSTRUCTIONS, _LEAST_INSTRUCTIONS, _PER_BYTE = 100_000, 10_000_000, 4
#: Bytes that a value may have beside those of the file.
_ROOM_BYTES = 1 << 20
#: The longest value of SQLite.
_LONGEST = 2**31 - 1
#: What SQLite calls a view that is of no use here.
_PROBLEMS: dict[int | None, str] = {
    sqlite3.SQLITE_INTERRUPT: "takes longer than tables do",
    sqlite3.SQLITE_TOOBIG: "has values longer than the file",
}


def check_views(file: Path) -> None:
    """Raise ``ValueError`` for a file with a view, or a table with computed columns, that takes longer than tables do.

    ``sqlite3.DatabaseError`` for a file that is no database.
    """
    looks, most_looks = count(1), (_LEAST_INSTRUCTIONS + _PER_BYTE * file.stat().st_size) // _INSTRUCTIONS
    with closing(read_only(file)) as database:
        database.text_factory = bytes  # names of columns only: what is in them need not be text
        database.set_progress_handler(lambda: next(looks) > most_looks, _INSTRUCTIONS)
        for name in _computed(database):
            try:
                found = [row[1].decode("utf-8", "replace") for row in database.execute(f"PRAGMA table_xinfo({quoted(name)})")]
                lengths = " + ".join(f"ifnull(length({quoted(column)}), 0)" for column in found) or "0"
                database.execute(f"SELECT total({lengths}) FROM {quoted(name)}").fetchall()  # all rows, and lengths of values
            except (sqlite3.OperationalError, sqlite3.DataError) as error:
                problem = _PROBLEMS.get(getattr(error, "sqlite_errorcode", None))
                if problem is None:
                    continue  # it is broken, which GDAL finds out where it is asked for
                raise ValueError(
                    f"{file.name}: {name!r:.80} is a view, or has computed columns, and {problem}; write the layer into a "
                    "GeoPackage of its own, as `ogr2ogr -limit ROWS out.gpkg in.gpkg LAYER` does"
                ) from error


def _computed(database: sqlite3.Connection) -> list[str]:
    """Views, virtual tables but for those of SQLite's R-trees, and tables with computed columns."""
    found = database.execute("SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
    return [
        name.decode("utf-8", "replace")
        for name, kind, sql in found
        if isinstance(name, bytes) and (kind == b"view" or b" AS " in bytes(sql or b"").upper().replace(b"(", b" "))
    ]


def read_only(file: Path) -> sqlite3.Connection:
    """The database in a file, whose values are no longer than the file allows."""
    database = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(file.stat().st_size + _ROOM_BYTES, _LONGEST))
    return database


def quoted(name: str) -> str:
    """An identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
