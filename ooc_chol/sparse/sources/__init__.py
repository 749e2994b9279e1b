"""Sources of sparse matrices: what :func:`rows_of` takes, one module for each format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from ooc_chol.sparse.canonical import Rules, Zeros, canonical
from ooc_chol.sparse.rows import AbstractRows, RowCounts, Rows
from ooc_chol.sparse.sources.arrays import array_rows
from ooc_chol.sparse.sources.edges import edge_list
from ooc_chol.sparse.sources.matrix_market import matrix_market_rows
from ooc_chol.sparse.sources.metis import metis_graph
from ooc_chol.sparse.sources.npy import folder_rows
from ooc_chol.sparse.sources.npz import npz_rows
from ooc_chol.sparse.sources.others import npy_rows

__all__ = ["NonzeroRows", "rows_of"]

#: What reads a file, by the ending of its name.
_READERS: dict[str, Callable[..., AbstractRows]] = {
    ".npz": npz_rows,
    ".npy": npy_rows,
    **{f".mtx{packed}": matrix_market_rows for packed in ("", ".gz")},
    **{f".graph{packed}": metis_graph for packed in ("", ".gz")},
    **{
        f"{ending}{packed}": edge_list
        for ending in (".txt", ".csv", ".tsv", ".edges", ".edgelist", ".el")
        for packed in ("", ".gz")
    },
}
#: Endings of what NetworkX reads, whose functions are called ``read_gml`` and so on.
_OF_NETWORKX = (".gml", ".graphml", ".gexf", ".pajek", ".net", ".sparse6", ".graph6")


def rows_of(source: Any, *, zeros: Zeros = "keep", name: str | None = None) -> AbstractRows:
    """The rows of whatever holds a sparse matrix.

    Raises ``TypeError``, ``OSError``, ``ValueError``, ``SparseInputError`` and ``TierError``.
    """
    if isinstance(source, AbstractRows):
        return source if zeros == "keep" else NonzeroRows(source, zeros)
    if not isinstance(source, str | os.PathLike):
        return array_rows(source, zeros=zeros, name=name)
    os.stat(source)  # raises what is wrong with its name, before its ending does
    path = Path(source)
    ending = "".join(suffix.lower() for suffix in path.suffixes[-2:])
    known = next((each for each in _READERS if ending.endswith(each)), None)
    if path.is_dir():
        return folder_rows(path, zeros=zeros, name=name)
    if path.suffix.lower() in _OF_NETWORKX:
        raise ValueError(f"{path} is in a format of NetworkX: read it with networkx, and give the graph")
    if known is None:
        problem = f"{path} ends in none of {', '.join(_READERS)}"
        raise ValueError(f"{problem}: give a file in one of these formats, or a folder of indptr.npy and indices.npy")
    return _READERS[known](path, zeros=zeros, name=name)


@final
class NonzeroRows(AbstractRows):
    """Rows of another source, without its entries that are zero."""

    def __init__(self, rows: AbstractRows, zeros: Zeros = "drop") -> None:
        self.name, self.shape, self.expected_entries = rows.name, rows.shape, rows.expected_entries
        self.counts = RowCounts()
        self._rows, self._rules = rows, Rules(rows.name, rows.shape[1], zeros)

    def runs(self) -> Iterator[Rows]:
        """Its runs, what is counted of the other source with them."""
        counts = RowCounts()
        for run in self._rows.runs():
            yield canonical(*run, self._rules, counts)
        self.counts = replace(self._rows.counts, zeros=counts.zeros)
