"""Files written by hand, and mutations that keep a format's outer shell whole."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import numpy as np

from tests.fuzz.mutations import BLIND, TOKENS, Mutator, mutated

#: The bytes of a file, or what changes a good one in its place.
Attack: TypeAlias = bytes | Callable[[Path], object]

_DEEP = 100_000
_DIGITS = "9" * 400
_SIGNS = (("", ""), ("-", ""), ("", "-"), ("-", "-"))


def matrix(n: int) -> np.ndarray:
    """An exponential covariance on a line."""
    t = np.linspace(0.0, 1.0, n)
    return np.exp(-np.abs(t[:, None] - t[None, :])) + 0.1 * np.eye(n)


# .npy


def _npy(header: str, version: tuple[int, int] = (1, 0), body: bytes = b"\0" * 1152, length: int | None = None) -> bytes:
    text = header.encode("utf-8", "surrogatepass")
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + text + body


def _header(descr: str = "'<f8'", order: str = "False", shape: str = "(12, 12)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


_DESCRIPTIONS = (
    *("'<f8'", "'>f4'", "'<c16'", "'|O'", "'<U5'", "'|S3'", "'|b1'", "'<M8[s]'", "'<m8'", "'|V8'", "'<f2'", "'<f16'", "'<i8'"),
    *("[('a', '<f8')]", "('<f8', (12,))", "[]", "None", "3", "'nonsense'", "''", "'<f8' * 10**9", f"'<V{_DIGITS}'", "'|V0'"),
)
_SHAPES = (
    *("()", "(12,)", "(12, 12, 1)", "(0, 0)", "(-1, -1)", "(144, 1)", "12", "None", "(12.0, 12.0)", "(True, True)", "(1, 1)"),
    *("(2**40, 2**40)", "(1099511627776, 1099511627776)", "(9223372036854775808, 9223372036854775808)", "('a', 'b')"),
    *(f"({_DIGITS}, {_DIGITS})", "(4294967296, 4294967296)", "[12, 12]"),
)


def npy_header_changed(rng: Random, data: bytes) -> bytes:
    version = rng.choice(((1, 0), (1, 0), (2, 0), (3, 0), (4, 0), (255, 255)))
    words = rng.choice(_DESCRIPTIONS), rng.choice(("False", "True", "None", "1", "'x'")), rng.choice(_SHAPES)
    defaults = "'<f8'", "False", "(12, 12)"
    chosen = [word if rng.random() < 0.5 else default for word, default in zip(words, defaults, strict=True)]
    return _npy(_header(*chosen), version, data[128:])


def npy_values_changed(rng: Random, data: bytes) -> bytes:
    values = np.frombuffer(data[128:], "<f8").copy()
    choices = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 1e200, -1.0)
    for _ in range(rng.choice((1, 3, 30))):
        values[rng.randrange(len(values))] = rng.choice(choices)
    return data[:128] + values.tobytes()


NPY_MUTATORS: tuple[Mutator, ...] = (npy_header_changed, npy_header_changed, lambda r, d: npy_values_changed(r, _good_npy()))


def _good_npy() -> bytes:
    file = io.BytesIO()
    np.save(file, matrix(12))
    return file.getvalue()


def of_npy(good: bytes) -> dict[str, Attack]:
    deep = "(" * 5000 + ")" * 5000
    found: dict[str, Attack] = {
        "a header of 64 KiB of brackets": _npy(f"{{'descr': {deep}}}"),
        "a header of 4 GiB, as it says": _npy(_header(), (2, 0), length=2**32 - 1),
        "a header that runs code": _npy("__import__('os').abort()"),
        "a doubled key": _npy("{'descr': '<f8', 'descr': '|O', 'fortran_order': False, 'shape': (12, 12)}"),
        "Python objects": _npy(_header("'|O'"), body=b"cos\nabort\n(tR."),
        "an archive": b"PK\x03\x04" + good,
        "lone surrogates": _npy("{'descr': '\ud800', 'fortran_order': False, 'shape': (12, 12)}", (3, 0)),
        "no bytes": b"",
    }
    return found | {f"shape {shape:.30}": _npy(_header(shape=shape)) for shape in _SHAPES}


# JSON


def of_json(good: bytes) -> dict[str, Attack]:
    text = good.decode()
    return {
        "deep lists": b"[" * _DEEP + b"]" * _DEEP,
        "deep objects": b'{"a":' * _DEEP,
        "deep within": text.replace("{", '{"deep": ' + "[" * _DEEP + "]" * _DEEP + ",", 1).encode(),
        "an integer of 5000 digits": b"9" * 5000,
        "UTF-16": text.encode("utf-16"),
        "a byte order mark": text.encode("utf-8-sig"),
        "NUL": good + b"\0",
        "lone surrogates": b'{"format": "\\ud800"}',
        "a list": b"[1, 2, 3]",
        "every number with 400 digits": _with_numbers(text, _DIGITS),
        "every number infinite": _with_numbers(text, "Infinity"),
        "every number NaN": _with_numbers(text, "NaN"),
        "every number true": _with_numbers(text, "true"),
        "every number null": _with_numbers(text, "null"),
        "every number a list": _with_numbers(text, "[]"),
        "every number an object": _with_numbers(text, "{}"),
        "every number 1e400": _with_numbers(text, "1e400"),
    }


def _with_numbers(text: str, token: str) -> bytes:
    """Every number but the version replaced."""

    def change(tree: Any, key: object = None) -> Any:
        if isinstance(tree, dict):
            return {name: change(value, name) for name, value in tree.items()}
        if isinstance(tree, list):
            return [change(value) for value in tree]
        is_number = isinstance(tree, int | float) and not isinstance(tree, bool)
        return "\u0001" if is_number and key != "version" else tree

    return json.dumps(change(json.loads(text))).replace('"\\u0001"', token).encode()


def of_json_lines(good: bytes) -> dict[str, Attack]:
    first, *rest = good.decode().splitlines()
    lines = {
        name: b"\n".join([first.encode(), *(_with_numbers(line, token) for line in rest)]) + b"\n"
        for name, token in (
            ("400 digits", _DIGITS),
            ("NaN", "NaN"),
            ("true", "true"),
            ("null", "null"),
            ("1e400", "1e400"),
            ("1e308", "1e308"),
        )
    }
    text = good.decode()
    return {
        **lines,
        "deep": first.encode() + b"\n" + b"[" * _DEEP + b"\n",
        "lists of no numbers": b"\n".join([first.encode(), *(_with_numbers(line, '["a"]') for line in rest)]) + b"\n",
        "the header twice": f"{first}\n{text}".encode(),
        "UTF-16": text.encode("utf-16"),
        "a byte order mark": text.encode("utf-8-sig"),
        "a line of 1 MB": good + b'{"kind": "' + b"a" * 1_000_000 + b'"}\n',
        "no end": first.encode(),
    }


# traces


def _trace_changed(rng: Random, data: bytes) -> bytes:
    """Packets removed, doubled or exchanged, and fields set to what does not belong there."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    try:
        trace = Trace.FromString(data)
        packets = list(trace.packet)
    except Exception:  # it was mutated before
        return mutated(rng, data, BLIND)
    for _ in range(rng.choice((1, 1, 4, 32))):
        if packets:
            _change_packet(rng, packets)
    return b"".join(Trace(packet=[packet]).SerializeToString() for packet in packets)


def _change_packet(rng: Random, packets: list[Any]) -> None:
    at = rng.randrange(len(packets))
    packet, wild = packets[at], rng.choice((0, 1, 2**31, 2**63, 2**64 - 1, rng.getrandbits(64)))
    match rng.randrange(8):
        case 0:
            del packets[at]
        case 1:
            packets.insert(at, packet)
        case 2:
            packets[at], packets[0] = packets[0], packets[at]
        case 3:
            packet.timestamp = wild
        case 4:
            packet.track_event.track_uuid = wild
        case 5 if packet.HasField("track_event"):
            event = packet.track_event
            event.ClearField(
                rng.choice(("category_iids", "debug_annotations", "flow_ids", "terminating_flow_ids", "type", "name"))
            )
        case 6 if packet.HasField("track_event") and packet.track_event.debug_annotations:
            note = rng.choice(packet.track_event.debug_annotations)
            rng.choice((lambda: setattr(note, "string_value", "x"), lambda: setattr(note, "double_value", float("nan")),
                        lambda: note.ClearField("string_value"), lambda: setattr(note, "name_iid", wild),
                        lambda: setattr(note, "int_value", -(2**63)), lambda: setattr(note, "bool_value", True)))()  # fmt: skip
        case _:
            if packet.HasField("track_descriptor"):
                packet.track_descriptor.name = rng.choice(("", "host:0 compute", "x", "\u2028", "predicted", "a" * 1000))
                packet.track_descriptor.description = rng.choice(("", "x", packet.track_descriptor.description))
            else:
                packet.interned_data.Clear()


TRACE_MUTATORS: tuple[Mutator, ...] = (_trace_changed,) * 12


def _inside(mutators: tuple[Mutator, ...]) -> Mutator:
    """Changes to what gzip compressed."""

    def change(rng: Random, data: bytes) -> bytes:
        try:
            content = gzip.decompress(data)
        except (OSError, EOFError, ValueError, Exception):  # it was mutated before
            return mutated(rng, data, BLIND)
        return gzip.compress(mutated(rng, content, mutators), 1)

    return change


GZIP_MUTATORS: tuple[Mutator, ...] = (*BLIND, *[_inside(BLIND)] * 8, *[_inside(TRACE_MUTATORS)] * 8)


def of_trace(good: bytes) -> dict[str, Attack]:
    return {
        "nothing but the mark": b"\x08\x01\x12\x05fetch",
        "the good one 200 times": good * 200,
        "groups within groups": good + _groups(2000),
        "deep groups": good + _groups(100_000),
    }


def _groups(depth: int) -> bytes:
    """Unknown fields that begin a group each."""
    return b"\xa3\x7d" * depth + b"\xa4\x7d" * depth


def of_gzip(good: bytes) -> dict[str, Attack]:
    content = gzip.decompress(good)
    return {
        "256 MiB of nothing in a small file": gzip.compress(content + b"\0" * (256 << 20), 1),
        "several members": good * 3,
        "a member within": gzip.compress(good),
        "what is no gzip behind": good + b"abc",
        "half a member behind": good + good[:100],
    }


# text


def of_asc(good: bytes) -> dict[str, Attack]:
    """Headers that promise more than there is, or places that are none."""
    changes = {
        "columns without end": (b"ncols 5", b"ncols 999999999999"),
        "rows without end": (b"nrows 5", b"nrows 2147483647"),
        "no columns": (b"ncols 5", b"ncols 0"),
        "a size of not a number": (b"cellsize 0.25", b"cellsize nan"),
        "a size without end": (b"cellsize 0.25", b"cellsize 1e999"),
        "a corner without end": (b"yllcorner", b"yllcorner inf\nyllcorner"),
        "a header without end": (b"ncols 5", b"ncols 5\n" * 10_000),
        "a line without end": (b"ncols 5", b"ncols " + b"5" * 10_000_000),
        "all gaps": (b"NODATA_value -9999.0", b"NODATA_value 1.0"),
    }
    return {name: good.replace(*change) for name, change in changes.items()} | {"nothing": b"", "a number": b"1"}


def of_formula(good: bytes) -> dict[str, Attack]:
    texts = (
        *("", "~", "zinc", "zinc ~", "~ x", "zinc ~ x ~ x", "zinc ~ __import__('os')", "zinc ~ x.real", "zinc ~ (lambda: x)()"),
        *(
            "zinc ~ [x for x in x]",
            "zinc ~ x if x else x",
            "zinc ~ f'{x}'",
            "zinc ~ sqrt(x, x)",
            "zinc ~ sqrt(*x)",
            "zinc ~ x**x",
        ),
        *(
            "zinc ~ 9**9**9**9*x",
            f"zinc ~ x*{_DIGITS}",
            f"zinc ~ x*{'9' * 5000}",
            "zinc ~ x*1e400",
            "zinc ~ x*1j",
            "zinc ~ 2**x**2000",
        ),
        *("zinc ~ " + "(" * 10_000 + "x" + ")" * 10_000, "zinc ~ " + "-" * 100_000 + "x", "zinc ~ " + "x+" * 50_000 + "x"),
        *(
            "zinc ~ " + "x*" * 5_000 + "x",
            "zinc ~ " + "sqrt(" * 150 + "x" + ")" * 150,
            "zinc ~ x\x00",
            "zinc ~ \ufeffx",
            "zinc ~ \uff58",
        ),
        *("zinc ~ x" + ".a" * 20_000, "zinc ~ x" + "[0]" * 5_000, "zinc ~ " + "not " * 5_000 + "x", "zinc ~ f" + "()" * 5_000),
        *("zinc ~ x\n+ y", "zinc ~ x; y", "zinc ~ (x := 1)", "zinc ~ await x", "zinc ~ x[0]", "zinc ~ True", "zinc ~ x*True"),
        *("zinc ~ 1 + 1 + 0", "log(zinc - zinc) ~ x", "zinc ~ 0*x/0", "zinc ~ x - x", "zinc + x ~ 1", "zinc ~ \ud800"),
        *("zinc ~ " + " + ".join(f"x**{k}" for k in range(2, 150)), "zinc ~ " + " + ".join(f"sin({k}*x)" for k in range(1, 190))),
    )
    return {f"{number}: {text:.30}": text.encode("utf-8", "surrogatepass") for number, text in enumerate(texts)}


def of_words(good: bytes) -> dict[str, Attack]:
    texts = (
        *TOKENS,
        "1e400 GB",
        "9" * 5000 + " B",
        "1 YB",
        "-1 GB",
        "1e308 PiB",
        "½ GB",
        "\u0661\u0662",
        "²",
        "host:" + "9" * 5000,
        "host:-1",
        ",",
    )
    return {f"{number}: {text:.30}": text.encode("utf-8", "surrogatepass") for number, text in enumerate(texts)}


def of_csv(good: bytes) -> dict[str, Attack]:
    head, *rows = good.decode().splitlines()
    return {
        "a cell of 5 MB": (head + '\n"' + "1" * 5_000_000 + '",1,1,1\n').encode(),
        "a quote that never ends": (head + '\n"' + "\n".join(rows * 2000)).encode(),
        "a header of 5 MB": b"x" * 5_000_000 + b"\n" + good,
        "100,000 columns": (head + "," + ",".join(map(str, range(100_000))) + "\n" + rows[0]).encode(),
        "100,000 cells": (head + "\n" + rows[0] + ",1" * 100_000).encode(),
        "NUL": good.replace(b"0.", b"\0."),
        "UTF-16": good.decode().encode("utf-16"),
        "a byte order mark": b"\xef\xbb\xbf" + good,
        "bytes that are no UTF-8": good.replace(b"x", b"\xff\xfe"),
        "old Mac's ends": good.replace(b"\n", b"\r"),
        "empty lines": good.replace(b"\n", b"\n" * 50_000, 1),
        "numbers without end": (head + "\n" + ",".join(["1e400"] * 4)).encode(),
        "400 digits": (head + "\n" + ",".join([_DIGITS] * 4)).encode(),
        "other digits": (head + "\n" + ",".join(["\u0661"] * 4) + "\n" + ",".join(["\uff11"] * 4)).encode(),
        "underscores": (head + "\n" + ",".join(["1_0"] * 4)).encode(),
        "a column without a name": good.replace(b"dist", b"\0", 1),
        "columns twice": (head + "," + head + "\n" + rows[0] + "," + rows[0]).encode(),
        "one row": (head + "\n" + rows[0]).encode(),
        "values that differ by 1e300": (head + "\n1,2,3,4\n1e300,-1e300,1e300,1e300\n2,3,4,5\n").encode(),
        "as large as may be": (head + "\n" + "\n".join(f"{s}1.7e308,{t}1.7e308,1.7e308,1.7e308" for s, t in _SIGNS)).encode(),
    }  # fmt: skip


# binary tables


def of_parquet(good: bytes) -> dict[str, Attack]:
    def nothing(path: Path) -> None:
        """Rows without values, which take next to no bytes."""
        import pyarrow as pa
        from pyarrow import parquet

        group = pa.table(dict.fromkeys(("x", "y", "z", "dist"), pa.nulls(24_000_000, pa.int8())))
        parquet.write_table(group, path)

    def kinds(path: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        nested = pa.array([[1.0]] * 14)
        parquet.write_table(pa.table({"x": pa.array([True] * 14), "y": pa.array(["1"] * 14), "z": nested, "dist": nested}), path)

    def doubled(path: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        names = ["x", "x", "y", "z", "dist"]
        parquet.write_table(pa.Table.from_arrays([pa.array(np.arange(14.0))] * 5, names), path)

    def units(path: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        fields = [pa.field(name, pa.float64(), metadata={b"units": b"\xff\xfe"}) for name in ("x", "y", "z", "dist")]
        parquet.write_table(
            pa.Table.from_arrays([pa.array(np.arange(14.0) ** k) for k in range(4)], schema=pa.schema(fields)), path
        )

    def decimals(path: Path) -> None:
        from decimal import Decimal

        import pyarrow as pa
        from pyarrow import parquet

        column = pa.array([Decimal("9" * 70)] * 14, pa.decimal256(76, 0))
        parquet.write_table(pa.table(dict.fromkeys(("x", "y", "z", "dist"), column)), path)

    return {"24 million rows without values": nothing, "columns of other kinds": kinds, "a column twice": doubled,
            "units that are no text": units, "numbers of 70 digits": decimals}  # fmt: skip


def of_netcdf4(good: bytes) -> dict[str, Attack]:
    def unwritten(path: Path) -> None:
        import netCDF4

        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("site", 1 << 34)
            for name in ("x", "y", "z", "dist"):
                file.createVariable(name, "f8", ("site",), chunksizes=(1024,), zlib=True)

    def grid(path: Path) -> None:
        """A grid of axes only: one variable spans all, of 10^10 entries, none of which is written."""
        import netCDF4

        with netCDF4.Dataset(path, "w") as file:
            for name in ("x", "y"):
                file.createDimension(name, 100_000)
                file.createVariable(name, "f8", (name,))[:] = np.arange(100_000.0)
            for name in ("z", "dist"):
                file.createVariable(name, "f8", ("y", "x"), chunksizes=(100, 100))

    def names(path: Path) -> None:
        import netCDF4

        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("site", 3)
            for name in ("x", "y", "z", "dist"):
                made = file.createVariable(name, "f8", ("site",))
                made[:] = 1.0
                made.scale_factor, made.add_offset = "many", np.arange(3.0)

    def strings(path: Path) -> None:
        import netCDF4

        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("site", 3)
            for name in ("x", "y", "z", "dist"):
                file.createVariable(name, str, ("site",))

    def no_axes(path: Path) -> None:
        import netCDF4

        with netCDF4.Dataset(path, "w") as file:
            for name in ("x", "y", "z", "dist"):
                file.createVariable(name, "f8", ())[...] = 1.0

    def mapping(path: Path) -> None:
        import netCDF4

        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("site", 3)
            for name in ("x", "y", "z", "dist"):
                made = file.createVariable(name, "f8", ("site",))
                made[:] = np.arange(3.0)
                made.grid_mapping = "crs"
            crs = file.createVariable("crs", "i4", ())
            crs.grid_mapping_name, crs.standard_parallel = "lambert_conformal_conic", np.full(1000, np.nan)
            crs.semi_major_axis = np.inf

    def heap(path: Path) -> None:
        """An object of a global heap that takes no bytes, which HDF5 looks at for ever."""
        content = bytearray(good)
        start = content.index(b"GCOL")
        content[start + 16 : start + 32] = bytes(16)
        path.write_bytes(content)

    return {"a heap of nothing": heap, "17 billion entries, none written": unwritten, "a grid of 10^10 entries": grid,
            "packing by words": names,
            "strings": strings, "no dimensions": no_axes, "a nonsensical projection": mapping}  # fmt: skip


def of_netcdf5(good: bytes) -> dict[str, Attack]:
    """Each count of the header, one after the other, a hundred million."""
    return {f"a count at byte {at}": good[:at] + struct.pack(">Q", 10**8) + good[at + 8 :] for at in range(4, 200, 4)}


# GeoPackages

_ENDLESS = (
    "WITH RECURSIVE c(fid) AS (SELECT 1 UNION ALL SELECT fid + 1 FROM c) "
    "SELECT fid, zeroblob(9) AS geom, 1.0 AS z, 1.0 AS dist FROM c"
)
_STATEMENTS = (
    "DELETE FROM gpkg_contents",
    "DELETE FROM gpkg_geometry_columns",
    "DELETE FROM gpkg_spatial_ref_sys",
    "DROP TABLE gpkg_contents",
    "DROP TABLE gpkg_geometry_columns",
    "DROP TABLE gpkg_spatial_ref_sys",
    "DROP TABLE soil",
    "UPDATE gpkg_contents SET data_type = 'attributes'",
    "UPDATE gpkg_contents SET table_name = 'other'",
    "UPDATE gpkg_contents SET min_x = 'a', max_x = 9e999",
    "UPDATE gpkg_contents SET srs_id = 99999",
    "UPDATE gpkg_geometry_columns SET geometry_type_name = 'NONSENSE'",
    "UPDATE gpkg_geometry_columns SET geometry_type_name = 'GEOMETRYCOLLECTION'",
    "UPDATE gpkg_geometry_columns SET z = 2, m = 2",
    "UPDATE gpkg_geometry_columns SET column_name = 'z'",
    "UPDATE gpkg_geometry_columns SET column_name = 'nothing'",
    "UPDATE gpkg_geometry_columns SET srs_id = 99999",
    "UPDATE gpkg_spatial_ref_sys SET definition = 'PROJCS['",
    "UPDATE gpkg_spatial_ref_sys SET definition = x'ff00fe'",
    "UPDATE gpkg_spatial_ref_sys SET definition = NULL, organization = 'nobody'",
    "UPDATE gpkg_spatial_ref_sys SET organization_coordsys_id = 9223372036854775807",
    "UPDATE soil SET geom = NULL",
    "UPDATE soil SET geom = x''",
    "UPDATE soil SET geom = randomblob(50)",
    "UPDATE soil SET geom = x'4750ff'",
    "UPDATE soil SET geom = 'text' WHERE fid = 3",
    "UPDATE soil SET geom = substr(geom, 1, 30)",
    "UPDATE soil SET z = 'many' WHERE fid = 2",
    "UPDATE soil SET z = 9e999",
    "UPDATE soil SET z = NULL",
    "UPDATE soil SET z = zeroblob(100)",
    "UPDATE soil SET dist = 9223372036854775807",
    "UPDATE soil SET fid = 9223372036854775807 WHERE fid = 5",
    "ALTER TABLE soil ADD COLUMN x REAL",
    "ALTER TABLE soil RENAME COLUMN z TO 'z\"; DROP TABLE soil; --'",
    "ALTER TABLE soil RENAME TO 'a\"b'",
    "ALTER TABLE soil ADD COLUMN big BLOB GENERATED ALWAYS AS (zeroblob(999999999))",
    "PRAGMA application_id = 0",
    "PRAGMA user_version = 2147483647",
    "CREATE VIEW other AS SELECT * FROM soil",
    "CREATE TRIGGER t AFTER INSERT ON soil BEGIN DELETE FROM soil; END",
    "DROP TABLE IF EXISTS gpkg_extensions",
    "DROP TABLE IF EXISTS gpkg_ogr_contents",
    "UPDATE gpkg_ogr_contents SET feature_count = 9223372036854775807",
    "UPDATE gpkg_ogr_contents SET feature_count = -5",
    "INSERT INTO gpkg_contents (table_name, data_type) VALUES ('ghost', 'features')",
)


def _by_sql(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        database = sqlite3.connect(path)
        try:
            for statement in ("PRAGMA writable_schema = ON", *statements):
                try:
                    database.execute(statement)
                except sqlite3.Error:  # one before it took what it needs
                    continue
            database.commit()
        finally:
            database.close()

    return change


def geopackage_changed(rng: Random, data: bytes) -> bytes:
    """One to three statements of SQL."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.gpkg"
        path.write_bytes(data)
        try:
            _by_sql(*rng.choices(_STATEMENTS, k=rng.choice((1, 2, 3))))(path)
        except sqlite3.Error:  # it was mutated before
            return mutated(rng, data, BLIND)
        return path.read_bytes()


def of_geopackage(good: bytes) -> dict[str, Attack]:
    view = ("ALTER TABLE soil RENAME TO kept",)
    contents = ("ALTER TABLE gpkg_contents RENAME TO kept_contents",)
    generated = "ALTER TABLE soil ADD COLUMN {} GENERATED ALWAYS AS ({})"
    return {
        "the layer is an endless view": _by_sql(*view, f"CREATE VIEW soil AS {_ENDLESS}"),
        "the layer is a view without rows or end": _by_sql(
            *view, f"CREATE VIEW soil AS SELECT * FROM ({_ENDLESS}) WHERE fid < 0"
        ),
        "the layer is a product of seven": _by_sql(
            *view, "CREATE VIEW soil AS SELECT a.* FROM kept a, kept b, kept c, kept d, kept e, kept f, kept g"
        ),
        "contents are an endless view": _by_sql(
            *contents, f"CREATE VIEW gpkg_contents AS SELECT k.* FROM kept_contents k, ({_ENDLESS})"
        ),
        "contents are a view without rows or end": _by_sql(
            *contents, f"CREATE VIEW gpkg_contents AS SELECT k.* FROM kept_contents k, ({_ENDLESS}) e WHERE e.fid < 0"
        ),
        "another view is endless": _by_sql(f"CREATE VIEW aaa AS {_ENDLESS}"),
        "another view counts for ever": _by_sql(f"CREATE VIEW aaa AS SELECT count(*) AS n FROM ({_ENDLESS})"),
        "a column of gigabytes": _by_sql(
            "ALTER TABLE soil RENAME COLUMN dist TO old", generated.format("dist BLOB", "zeroblob(999999999)")
        ),
        "a column of long texts": _by_sql(
            "ALTER TABLE soil RENAME COLUMN dist TO old", generated.format("dist TEXT", "hex(zeroblob(99999999))")
        ),
        "a view of long texts": _by_sql(
            *view, "CREATE VIEW soil AS SELECT fid, geom, z, hex(zeroblob(99999999)) AS dist FROM kept"
        ),
        "a view that is good": _by_sql(*view, "CREATE VIEW soil AS SELECT * FROM kept"),
        "a log beside it": lambda path: Path(f"{path}-wal").write_bytes(os.urandom(5000)),
        "a journal beside it": lambda path: Path(f"{path}-journal").write_bytes(os.urandom(5000)),
        **{statement[:60]: _by_sql(statement) for statement in _STATEMENTS},
    }
