"""Sources of sparse matrices: what :func:`rows_of` takes, one module for each format."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ooc_chol.sparse.canonical import Zeros
from ooc_chol.sparse.rows import AbstractRows
from ooc_chol.sparse.sources.arrays import array_rows
from ooc_chol.sparse.sources.edges import edge_rows
from ooc_chol.sparse.sources.matrix_market import matrix_market_rows
from ooc_chol.sparse.sources.metis import metis_rows
from ooc_chol.sparse.sources.npy import folder_rows
from ooc_chol.sparse.sources.npz import npz_rows

__all__ = ["EDGE_SUFFIXES", "rows_of"]

_READERS: dict[str, Callable[..., AbstractRows]] = {
    ".npz": npz_rows,
    ".mtx": matrix_market_rows,
    ".mtx.gz": matrix_market_rows,
    ".graph": metis_rows,
    ".graph.gz": metis_rows,
}
#: Endings of lists of edges; each may be followed by ``.gz``.
EDGE_SUFFIXES = (".txt", ".csv", ".tsv", ".edges", ".el")


def rows_of(
    source: Any,
    *,
    zeros: Zeros = "keep",
    name: str | None = None,
    base: int = 0,
    directed: bool = False,
    shape: tuple[int, int] | None = None,
) -> AbstractRows:
    """The rows of whatever holds a sparse matrix.

    Parameters
    ----------
    source : AbstractRows, sparse matrix, str or PathLike
        A sparse matrix of SciPy, cupyx or PyTorch; or the path of a folder of ``.npy`` files, a ``.npz`` file of SciPy's, a
        Matrix Market file (``.mtx``), a graph of METIS's (``.graph``), or a list of edges; these three also with ``.gz``.
    zeros : {"keep", "drop"}
        What becomes of entries that are zero.
    name : str, optional
        Name for messages and reports; that of the file or of the type by default.
    base, directed, shape
        Of a list of edges: see :func:`ooc_chol.sparse.sources.edges.edge_rows`.

    Returns
    -------
    AbstractRows
        Its rows, which are never changed where they lie.

    Raises
    ------
    TypeError
        It is no sparse matrix, or a complex one; the message says what would do.
    ValueError
        The name of a file has another ending, or an option is of no use for the source.
    SparseInputError
        A file or a matrix is not what it should be.
    TierError
        A file cannot be read.

    Examples
    --------
    >>> from scipy.sparse import coo_array
    >>> rows = rows_of(coo_array(([1.0, 2.0, 4.0], ([1, 0, 1], [0, 1, 0])), shape=(2, 2)))
    >>> [(run.columns.tolist(), run.values.tolist()) for run in rows.runs()]
    [([1, 0], [2.0, 5.0])]
    >>> rows.counts.duplicates
    1
    """
    if isinstance(source, AbstractRows):
        return source
    edge_options = {"base": base, "directed": directed, "shape": shape}
    if not isinstance(source, str | os.PathLike):
        _check_none(edge_options, type(source).__name__)
        return array_rows(source, zeros=zeros, name=name)
    path = Path(source)
    ending = _ending(path)
    if ending.removesuffix(".gz") in EDGE_SUFFIXES and not path.is_dir():
        return edge_rows(path, base=base, directed=directed, shape=shape, zeros=zeros, name=name)
    _check_none(edge_options, str(path))
    if path.is_dir():
        return folder_rows(path, zeros=zeros, name=name)
    if ending not in _READERS:
        known = ", ".join((*_READERS, *EDGE_SUFFIXES))
        raise ValueError(
            f"{path} ends in none of {known}: give a file in one of these formats, or a folder of indptr.npy and indices.npy"
        )
    return _READERS[ending](path, zeros=zeros, name=name)


def _ending(path: Path) -> str:
    """The ending of a name, with the one before ``.gz``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def _check_none(options: dict[str, Any], what: str) -> None:
    """Refuse options of lists of edges for other sources."""
    given = [option for option, value in options.items() if value not in (0, False, None)]
    if given:
        raise ValueError(f"{' and '.join(given)} of {what!s:.200} cannot be chosen: only a list of edges leaves that open")
