"""Reading columns of Parquet files with pyarrow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.data.extras import imported
from ooc_chol.apps.geostat.data.io import MissingColumnError, Table, check_columns, check_table_room, complete_rows


def read_parquet(path: str | os.PathLike[str], names: Sequence[str], *, optional: Sequence[str] = ()) -> Table:
    """Read named columns of a Parquet file."""
    pyarrow, parquet = (imported(module, "Parquet files are read") for module in ("pyarrow", "pyarrow.parquet"))
    file = Path(path)
    with oc.input_file(file) as stream:
        try:
            content = parquet.ParquetFile(stream)
            schema = content.schema_arrow
            check_columns(file.name, names, schema.names)
            wanted = [*names, *(name for name in optional if name in schema.names and name not in names)]
            if doubled := [name for name in wanted if schema.names.count(name) > 1]:
                raise MissingColumnError(file.name, "has more than one column", doubled[0], schema.names)
            check_table_room(file.name, content.metadata.num_rows, len(wanted))
            table = content.read(columns=wanted)
        except (oc.BudgetError, MissingColumnError):
            raise
        except (pyarrow.ArrowException, MemoryError, UnicodeDecodeError, ValueError) as error:
            raise ValueError(f"{file.name} is not a Parquet file: {_brief(error)}") from error
        except OSError as error:
            # pyarrow's word for nonsense inside; what the system refuses has a number
            if error.errno is not None:
                raise
            raise ValueError(f"{file.name} is a damaged Parquet file: {_brief(error)}; copy it again") from error
    columns = {name: _numbers(table.column(name), f"{file.name}, column {name!r}", pyarrow) for name in wanted}
    metadata = {name: schema.field(name).metadata or {} for name in wanted}
    units = {
        name: (fields.get(b"units") or fields.get(b"unit") or b"").decode("utf-8", "replace") for name, fields in metadata.items()
    }
    return complete_rows(file.name, columns, names, units=units)


def _brief(error: BaseException) -> str:
    """The message of another library, without its line breaks."""
    return f"{' '.join(str(error).split()):.300}"


def _numbers(column: Any, where: str, pyarrow: Any) -> NDArray[np.float64]:
    """A column as float64, null as NaN."""
    kind = column.type
    if pyarrow.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind)):
        raise ValueError(f"{where} holds {kind}, not numbers")
    return np.array(column.cast(pyarrow.float64(), safe=False).to_numpy(), dtype=np.float64)
