"""Reading columns of Parquet files with pyarrow, and points of GeoParquet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.geometry_points import AXES, text_column
from ooc_chol.apps.geostat.data.geoparquet import point_column
from ooc_chol.apps.geostat.data.io import MissingColumnError, Table, check_columns, check_table_room, complete_rows


def read_parquet(
    path: str | os.PathLike[str], names: Sequence[str], *, optional: Sequence[str] = (), texts: Sequence[str] = ()
) -> Table:
    """Read named columns of a Parquet file; of GeoParquet, ``x``, ``y`` and ``z`` are those of its points."""
    pyarrow, parquet = (imported(module, "Parquet files are read") for module in ("pyarrow", "pyarrow.parquet"))
    file = Path(path)
    with tb.input_file(file) as stream, _damage(pyarrow, file.name):
        content = parquet.ParquetFile(stream)
        schema = content.schema_arrow
        points = point_column(schema)
        axes = () if points is None else points.axes
        check_columns(file.name, names, [*axes, *(name for name in schema.names if name not in axes)])
        wanted = [*names, *(name for name in optional if name in (*axes, *schema.names) and name not in names)]
        attributes = [name for name in wanted if name not in axes]
        if doubled := [name for name in attributes if schema.names.count(name) > 1]:
            raise MissingColumnError(file.name, "has more than one column", doubled[0], schema.names)
        check_table_room(file.name, content.metadata.num_rows, len(wanted))
        has_points = points is not None and len(attributes) < len(wanted)
        table = content.read(columns=[*attributes, *([points.name] if points is not None and has_points else [])])
    words = {
        name: _texts(table.column(name)) for name in attributes if name in texts and _is_text(table.column(name).type, pyarrow)
    }
    where = f"{file.name}, column"
    columns = {name: _numbers(table.column(name), f"{where} {name!r}", pyarrow) for name in attributes if name not in words}
    metadata = {name: schema.field(name).metadata or {} for name in attributes}
    units = {
        name: (fields.get(b"units") or fields.get(b"unit") or b"").decode("utf-8", "replace") for name, fields in metadata.items()
    }
    crs = None
    if points is not None and has_points:
        found = points.coordinates(table.column(points.name), file.name)
        columns |= {name: found[name] for name in wanted if name in axes}
        crs = points.crs(file.name)
        units |= dict.fromkeys(AXES[:2], crs.unit) if crs else {}
    kept = {name: columns[name] for name in wanted if name in columns}
    return complete_rows(file.name, kept, names, units=units, crs=crs, texts=words)


def parquet_axes(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """``x`` and ``y``, and ``z`` where its points have it, of a GeoParquet file; none of any other."""
    pyarrow, parquet = (imported(module, "Parquet files are read") for module in ("pyarrow", "pyarrow.parquet"))
    with tb.input_file(path) as stream, _damage(pyarrow, Path(path).name):
        points = point_column(parquet.ParquetFile(stream).schema_arrow)
    return () if points is None else points.axes


@contextmanager
def _damage(pyarrow: Any, source: str) -> Iterator[None]:
    """Errors of pyarrow as what they mean."""
    try:
        yield
    except (oc.BudgetError, MissingColumnError):
        raise
    except (pyarrow.ArrowException, MemoryError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{source} is not a Parquet file: {_brief(error)}") from error
    except OSError as error:
        # pyarrow's word for nonsense inside; what the system refuses has a number
        if error.errno is not None:
            raise
        raise ValueError(f"{source} is a damaged Parquet file: {_brief(error)}; copy it again") from error


def _brief(error: BaseException) -> str:
    """The message of another library, without its line breaks."""
    return f"{' '.join(str(error).split()):.300}"


def _is_text(kind: Any, pyarrow: Any) -> bool:
    """Tell whether a column holds words, plain or by number."""
    value = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    return bool(pyarrow.types.is_string(value) or pyarrow.types.is_large_string(value))


def _texts(column: Any) -> NDArray[np.str_]:
    """Words of a column, empty where there is none."""
    return text_column(np.array(column.to_pylist(), dtype=object))


def _numbers(column: Any, where: str, pyarrow: Any) -> NDArray[np.float64]:
    """A column as float64, null as NaN."""
    kind = column.type
    if pyarrow.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind)):
        raise ValueError(f"{where} holds {kind}, not numbers")
    return np.array(column.cast(pyarrow.float64(), safe=False).to_numpy(), dtype=np.float64)
