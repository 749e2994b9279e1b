"""Functions of sparse matrices, each a pattern and its values, made of operations that know their derivatives.

``apply`` computes an operation: :func:`ooc_chol.diff.ops.run` for arrays of NumPy and CuPy. An adapter hands in what records the
call with its framework.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ooc_chol.calls.options import documented
from ooc_chol.diff.canonical import made_canonical
from ooc_chol.diff.memory import IndexArray, index_type
from ooc_chol.diff.ops import Apply, Contract, Gather, RowSums, Scatter, Spread, Times, Transpose, run
from ooc_chol.diff.pattern import Pattern, trusted
from ooc_chol.diff.triples import Triples, product_structure


class Union(NamedTuple):
    """The entries of two patterns together."""

    pattern: Pattern
    from_p: IndexArray  #: Place in the union of each entry of p
    from_q: IndexArray  #: Place in the union of each entry of q


def union(p: Pattern, q: Pattern) -> Union:
    """The pattern of ``A + B``. Raises ``ValueError``: the shapes differ."""
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
    merged = made_canonical(starts, columns, p.shape, f"{p.name} + {q.name}", trusted)
    kind = index_type(columns.size)
    of_entry = np.arange(columns.size, dtype=kind) if merged.merging is None else merged.merging.rows
    place = np.empty(columns.size, kind)
    place[slice(None) if merged.order is None else merged.order.host] = of_entry
    return Union(merged.pattern, IndexArray(place[at_p]), IndexArray(place[at_q]))


def union_of(p: Pattern, q: Pattern) -> Union:
    """The union of two patterns, made once for each pair; its pattern is one of them where it has no more entries."""
    merged, *places = p.with_other(q, "union", _kept_union)
    return Union(_one_of(merged, p, q), *places)


def _kept_union(p: Pattern, q: Pattern) -> tuple[Pattern | str, IndexArray, IndexArray]:
    """The union, by name where it is one of the two: what is kept with both must not keep them."""
    merged, from_p, from_q = union(p, q)
    return _name_of(merged, p, q) or merged, from_p, from_q


def structure_of(p: Pattern, q: Pattern) -> Triples:
    """The structure of the product of two patterns, made once for each pair."""
    found: Triples = p.with_other(q, "product", product_structure)
    return found


def product_of(p: Pattern, q: Pattern) -> tuple[Pattern, Triples]:
    """The same, and the pattern of the product, which is one of the two where it is equal to it: powers of a matrix fill up."""
    triples = structure_of(p, q)
    same = p.with_other(q, "product is", lambda p, q: _name_of(triples.pattern, p, q))
    return _one_of(same or triples.pattern, p, q), triples


def _name_of(pattern: Pattern, p: Pattern, q: Pattern) -> str:
    return "p" if pattern == p else "q" if pattern == q else ""


def _one_of(found: Pattern | str, p: Pattern, q: Pattern) -> Pattern:
    return found if isinstance(found, Pattern) else p if found == "p" else q


def add(
    p: Pattern, a: Any, q: Pattern, b: Any, *, alpha: float = 1.0, beta: float = 1.0, apply: Apply = run
) -> tuple[Pattern, Any]:
    """``alpha A + beta B``.

    Parameters
    ----------
    p, q : Pattern
        Patterns of A and of B, of one shape.
    a, b : (nnz,) array
        Their values.
    alpha, beta : float
        Factors.
    apply : callable
        Computing part: an adapter's own, for arrays of its framework.

    Returns
    -------
    pattern : Pattern
        The union of both; entries that cancel stay.
    values : (nnz,) array
        The values there.

    Raises
    ------
    ValueError
        The shapes differ, or values are not as many as entries.
    TypeError
        The values are of two types.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> p, q = (
    ...     oc.diff.Pattern([0, 1], [0], (1, 2)),
    ...     oc.diff.Pattern([0, 2], [0, 1], (1, 2)),
    ... )
    >>> pattern, values = oc.diff.add(
    ...     p, np.array([1.0]), q, np.array([10.0, 20.0])
    ... )
    >>> pattern, values.tolist()
    (Pattern(1 x 2, 2 entries), [11.0, 20.0])
    """
    both = union_of(p, q)
    n = both.pattern.nnz
    types = [getattr(values, "dtype", None) for values in (a, b)]  # what adapters record need not have one
    if types[0] != types[1]:
        raise TypeError(f"a is of {types[0]}, but b of {types[1]}: give both in one type")
    left, right = apply(Scatter(both.from_p, n), a), apply(Scatter(both.from_q, n), b)
    left = left if alpha == 1 else float(alpha) * left
    right = right if beta == 1 else float(beta) * right
    return both.pattern, left + right


def spgemm(p: Pattern, a: Any, q: Pattern, b: Any, *, precision: str | None = None, apply: Apply = run) -> tuple[Pattern, Any]:
    """``A @ B`` of two sparse matrices; the structure is made once for each pair of patterns.

    Parameters
    ----------
    p, q : Pattern
        Patterns of A and of B.
    a, b : (nnz,) array
        Their values.
    precision : {"FDF"}, optional
        Multiply and add float32 numbers in float64.
    apply : callable
        As for :func:`add`.

    Returns
    -------
    pattern : Pattern
        Every entry that the patterns make possible; those that cancel stay.
    values : (nnz,) array
        The values there.

    Raises
    ------
    ValueError
        The shapes do not fit, or values are not as many as entries.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> row, column = (
    ...     oc.diff.Pattern([0, 2], [0, 1], (1, 2)),
    ...     oc.diff.Pattern([0, 1, 2], [0, 0], (2, 1)),
    ... )
    >>> pattern, values = oc.diff.spgemm(
    ...     row, np.array([1.0, 2.0]), column, np.array([3.0, 4.0])
    ... )
    >>> pattern, values.tolist()
    (Pattern(1 x 1, 1 entry), [11.0])
    """
    pattern, triples = product_of(p, q)
    return pattern, apply(Contract(triples, "product", precision), a, b)


def transpose(p: Pattern, a: Any, *, apply: Apply = run) -> tuple[Pattern, Any]:
    """``A.T``: its pattern, and its values by one gather.

    Parameters
    ----------
    p : Pattern
        Shape of A.
    a : (nnz,) array
        Its values.
    apply : callable
        As for :func:`add`.

    Returns
    -------
    pattern : Pattern
        Pattern of the transpose.
    values : (nnz,) array
        Its values.
    """
    return p.transposed, apply(Transpose(p), a)


@documented(like=transpose)
def tril(p: Pattern, a: Any, k: int = 0, *, apply: Apply = run) -> tuple[Pattern, Any]:
    """The entries of A with ``column <= row + k``.

    Parameters
    ----------
    k : int
        How many diagonals above the main one are taken; below it where k is negative.

    Returns
    -------
    pattern : Pattern
        Pattern of the part.
    values : (nnz,) array
        Its values.
    """
    part = p.tril(k)
    return part.pattern, apply(Gather(part.places, p.nnz), a)


@documented(like=transpose)
def triu(p: Pattern, a: Any, k: int = 0, *, apply: Apply = run) -> tuple[Pattern, Any]:
    """The entries of A with ``column >= row + k``.

    Parameters
    ----------
    k : int
        From which diagonal on: above the main one where k is positive.

    Returns
    -------
    pattern : Pattern
        Pattern of the part.
    values : (nnz,) array
        Its values.
    """
    part = p.triu(k)
    return part.pattern, apply(Gather(part.places, p.nnz), a)


@documented(like=transpose)
def diagonal(p: Pattern, a: Any, *, apply: Apply = run) -> Any:
    """The diagonal of A.

    Returns
    -------
    (min(shape),) array
        0 where it has no entry.
    """
    return apply(Gather(p.diagonal, p.nnz), a)


@documented(like=transpose)
def row_sums(p: Pattern, a: Any, *, precision: str | None = None, apply: Apply = run) -> Any:
    """The sums of rows, ``A @ ones``.

    Parameters
    ----------
    precision : {"FDF"}, optional
        Add float32 numbers in float64.

    Returns
    -------
    (n_rows,) array
        The sums.
    """
    return apply(RowSums(p, precision), a)


@documented(like=transpose)
def scale(p: Pattern, a: Any, *, rows: Any = None, columns: Any = None, precision: str | None = None, apply: Apply = run) -> Any:
    """Values of ``diag(rows) A diag(columns)``, on the pattern of A.

    Parameters
    ----------
    rows : (n_rows,) array, optional
        Multiplier of each row.
    columns : (n_columns,) array, optional
        Multiplier of each column.
    precision : {"FDF"}, optional
        Add float32 numbers in float64, in gradients of the two vectors.

    Returns
    -------
    (nnz,) array
        The values.

    Raises
    ------
    ValueError
        Values are not as many as entries, or a vector has another length.
    TypeError
        They are of several types, or no arrays of float32 or float64.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 2, 3], [0, 2, 1], (2, 3))
    >>> oc.diff.scale(
    ...     pattern,
    ...     np.ones(3),
    ...     rows=np.array([2.0, 3.0]),
    ...     columns=np.array([1.0, 10.0, 100.0]),
    ... ).tolist()
    [2.0, 200.0, 30.0]
    """
    if apply is run:  # arrays, which no operation looks at where neither vector is given
        p.check_values(a)
    if rows is not None:
        a = apply(Times(), a, apply(Spread(p, precision), rows))
    if columns is not None:
        other = p.transposed
        a = apply(Times(), a, apply(Transpose(other), apply(Spread(other, precision), columns)))
    return a
