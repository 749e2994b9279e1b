"""Patterns that are made: of entries in any order, and of two patterns together."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.diff.checks import counted, rises
from ooc_chol.diff.memory import IndexArray, index_type
from ooc_chol.diff.ops import Apply, Gather, RowSums, run
from ooc_chol.diff.orders import frozen, sorting
from ooc_chol.diff.pattern import Pattern, trusted


@final
class Canonical:
    """A pattern that was made of entries in any order, and how their values come to it.

    Parameters
    ----------
    pattern : Pattern
        The pattern.
    order : IndexArray or None
        Places of the entries given, in the order of the pattern; None where that is their own.
    merging : Pattern or None
        A row for each entry of the pattern, and in it those that were given for its place, in that order; None where no two share
        one. Values are the sums of its rows.
    sorted_rows : int
        Rows whose columns did not ascend.
    """

    def __init__(self, pattern: Pattern, order: IndexArray | None, merging: Pattern | None, sorted_rows: int) -> None:
        self.pattern = pattern
        self.order = order
        self.merging = merging
        self.sorted_rows = sorted_rows

    @property
    def starts(self) -> NDArray[Any] | None:
        """Where the entries of each place begin in that order, (nnz + 1,); None where no two share one."""
        return None if self.merging is None else self.merging.indptr

    @property
    def merged(self) -> int:
        """Entries given less entries of the pattern."""
        return 0 if self.merging is None else self.merging.nnz - self.pattern.nnz

    def values(self, given: Any, *, apply: Apply = run) -> Any:
        """The values of the pattern: those given, in its order; those of the same place are added in the order they came in.

        Parameters
        ----------
        given : (given,) array
            A value for each entry that was given.
        apply : callable
            What computes operations: an adapter's own, for arrays of its framework, in which this is differentiable too.

        Returns
        -------
        (nnz,) array
            Values of ``pattern``.

        Raises
        ------
        ValueError
            They are not as many as the entries were.
        """
        count = self.pattern.nnz + self.merged
        if tuple(given.shape) != (count,):
            raise ValueError(
                f"values has shape {tuple(given.shape)}, but {counted(count, 'entry was', 'entries were')} given for "
                f"{self.pattern.name}: give one value for each"
            )
        if self.order is not None:
            given = apply(Gather(self.order, count), given)
        return given if self.merging is None else apply(RowSums(self.merging), given)

    def __repr__(self) -> str:
        said = []
        if self.sorted_rows:
            said.append(f"{counted(self.sorted_rows, 'row was', 'rows were')} sorted")
        if self.merged:
            said.append(f"{counted(self.merged, 'entry was merged into another', 'entries were merged into others')}")
        told = ", ".join(said) or "nothing was sorted or merged"
        return f"Canonical({self.pattern.size_text}; {told})"


class Union(NamedTuple):
    """The entries of two patterns together."""

    pattern: Pattern
    from_p: IndexArray  #: Place in the union of each entry of p
    from_q: IndexArray  #: Place in the union of each entry of q


def union(p: Pattern, q: Pattern) -> Union:
    """The pattern of ``A + B``.

    Parameters
    ----------
    p, q : Pattern
        Patterns of A and B, of one shape.

    Returns
    -------
    Union
        The pattern, and where the entries of each go in it.

    Raises
    ------
    ValueError
        The shapes differ.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> from ooc_chol.diff.canonical import union
    >>> both = union(oc.diff.Pattern([0, 1], [0], (1, 2)), oc.diff.Pattern([0, 2], [0, 1], (1, 2)))
    >>> both.pattern.indices.tolist(), both.from_p.host.tolist(), both.from_q.host.tolist()
    ([0, 1], [0], [0, 1])
    """
    if p.shape != q.shape:
        raise ValueError(f"{p!r} and {q!r} cannot be added: give patterns of one shape")
    if p == q:
        same = IndexArray(np.arange(p.nnz, dtype=index_type(p.nnz)))
        return Union(p, same, same)
    starts = p.indptr.astype(np.int64) + q.indptr
    at_p = np.arange(p.nnz, dtype=np.int64) + q.indptr[p.rows]  # all entries of p of a row, then all of q
    at_q = np.arange(q.nnz, dtype=np.int64) + p.indptr[1:][q.rows]
    columns = np.empty(p.nnz + q.nnz, np.int32)
    columns[at_p], columns[at_q] = p.indices, q.indices
    merged = made_canonical(starts, columns, p.shape, f"{p.name} + {q.name}")
    kind = index_type(columns.size)
    of_entry = np.arange(columns.size, dtype=kind) if merged.merging is None else merged.merging.rows
    place = np.empty(columns.size, kind)
    place[slice(None) if merged.order is None else merged.order.host] = of_entry
    return Union(merged.pattern, IndexArray(place[at_p]), IndexArray(place[at_q]))


def made_canonical(starts: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int], name: str) -> Canonical:
    """Rows sorted and entries of one place merged, where any need it; the arrays are known to fit the shape."""
    if rises(starts, columns, strictly=True).all():
        return Canonical(trusted(frozen(starts, index_type(columns.size)), frozen(columns, np.int32), shape, name), None, None, 0)
    falls = np.flatnonzero(~rises(starts, columns, strictly=False))
    order = None
    if falls.size:
        order = sorting(starts, columns, shape[1])
        columns = columns[order]  # of any type of whole numbers
    heads = np.flatnonzero(rises(starts, columns, strictly=True))
    merging = None
    if heads.size < columns.size:
        given = np.arange(columns.size, dtype=index_type(columns.size))
        merging = trusted(np.append(heads, columns.size), given, (heads.size, columns.size), f"entries of {name}")
    pattern = trusted(np.searchsorted(heads, starts), frozen(columns[heads], np.int32), shape, name)
    sorted_rows = np.unique(np.searchsorted(starts, falls, side="right")).size
    return Canonical(pattern, None if order is None else IndexArray(order), merging, sorted_rows)
