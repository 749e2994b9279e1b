"""How large the factor of a sparse symmetric matrix will be, told before it is made."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, triu
from scipy.sparse.linalg import spilu

#: SuperLU's ordering and options for matrices of symmetric pattern: pivots stay on the diagonal where they can.
ORDERING: dict[str, Any] = {"permc_spec": "MMD_AT_PLUS_A", "options": {"SymmetricMode": True}}
#: Bytes of an entry of L or U: its value, and the number of its row.
_ENTRY_BYTES = 12
#: Most bytes that SuperLU holds for each byte of factors while it makes them: supernodes hold zeros, and arrays grow by copies.
#: It was 0.3 to 2.0 for graphs of Walshaw's archive and a grid.
_GROWTH = 2.5


class FactorSize(NamedTuple):
    """Size of L and U of a matrix of symmetric pattern, pivots on the diagonal."""

    entries: int  #: Of L and U together, without the zeros of supernodes
    nbytes: int  #: Most bytes of memory while they are made


def factor_size(a: csc_array) -> FactorSize:
    """Size of SuperLU's factors of ``a``, by a symbolic factorization.

    Shapes: ``a`` (n, n). The order of elimination is that which SuperLU takes: an incomplete factorization that drops everything
    tells it, in a few passes over the entries. Column counts are those of Gilbert, Ng and Peyton (1994), in time almost linear in
    the entries of A.
    """
    n = a.shape[0]
    order = elimination_order(a)
    upper = csc_array(triu(a[order][:, order], k=1))
    in_l = int(counted_tree(upper).counts.sum())
    entries = 2 * in_l
    return FactorSize(entries, int(_GROWTH * _ENTRY_BYTES * entries) + 64 * n)


def elimination_order(a: csc_array) -> NDArray[np.intp]:
    """Columns in the order in which SuperLU eliminates them: it depends on the pattern alone."""
    n = a.shape[0]
    pattern = csc_array((np.full(a.nnz, -1.0), a.indices, a.indptr), shape=a.shape)
    pattern.setdiag(float(np.diff(a.indptr).max(initial=0)) + 1.0)  # dominant, so that nothing is singular
    told = spilu(pattern, drop_tol=1.0, fill_factor=1.0, diag_pivot_thresh=0.0, **ORDERING).perm_c
    return np.argsort(np.asarray(told, dtype=np.intp).reshape(n))


def _elimination_tree(upper: csc_array) -> list[int]:
    """Parent of each column, -1 for roots (Liu 1990), of the strict upper triangle by columns."""
    n = upper.shape[0]
    starts, rows = upper.indptr.tolist(), upper.indices.tolist()
    parents, ancestors = [-1] * n, [-1] * n
    for column in range(n):
        for place in range(starts[column], starts[column + 1]):
            at = rows[place]
            while at not in (-1, column):
                following = ancestors[at]
                ancestors[at] = column
                if following == -1:
                    parents[at] = column
                at = following
    return parents


class CountedTree(NamedTuple):
    """Elimination tree of a matrix whose columns were put in an order in which each comes after its whole subtree."""

    order: NDArray[np.intp]  #: Which column of the matrix each is
    parents: NDArray[np.intp]  #: -1 for roots
    sizes: NDArray[np.intp]  #: Columns of each subtree
    counts: NDArray[np.intp]  #: Entries of each column of L, the diagonal included


def counted_tree(upper: csc_array) -> CountedTree:
    """The tree of a strict upper triangle by columns, the largest of siblings last, and the counts of L."""
    told = _elimination_tree(upper)
    sizes = np.asarray(_sizes(told), np.intp)
    order = np.asarray(_postorder(told, np.argsort(-sizes, kind="stable").tolist()), np.intp)
    number = np.empty(order.size, np.intp)
    number[order] = np.arange(order.size)
    parents = np.asarray(told, np.intp)[order]
    parents = np.where(parents >= 0, number[parents], -1)
    matrix = upper.tocoo()
    ends = number[matrix.row], number[matrix.col]
    # Both are ancestors and descendants of each other: their order stays.
    lower = csr_array((matrix.data, ends), shape=upper.shape)
    return CountedTree(order, parents, sizes[order], _column_counts(lower, parents.tolist(), sizes[order]))


def _sizes(parents: list[int]) -> list[int]:
    sizes = [1] * len(parents)
    for column, parent in enumerate(parents):
        if parent != -1:
            sizes[parent] += sizes[column]
    return sizes


def _postorder(parents: list[int], last: list[int]) -> list[int]:
    """Columns in an order in which each comes after its whole subtree; of siblings, those that ``last`` names first come last."""
    n = len(parents)
    heads, following = [-1] * n, [-1] * n
    roots = []
    for column in last:
        parent = parents[column]
        if parent == -1:
            roots.append(column)
        else:
            following[column], heads[parent] = heads[parent], column
    order: list[int] = []
    for root in reversed(roots):
        stack = [root]
        while stack:
            child = heads[stack[-1]]
            if child == -1:
                order.append(stack.pop())
            else:
                heads[stack[-1]] = following[child]
                stack.append(child)
    return order


def _column_counts(upper: csr_array, parents: list[int], sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Entries of each column of L, the diagonal included, of a strict upper triangle by rows, whose columns are in postorder."""
    n = len(parents)
    starts, columns = upper.indptr.tolist(), upper.indices.tolist()
    firsts, counts = (np.arange(n) - sizes + 1).tolist(), (sizes == 1).astype(int).tolist()  # first descendants; leaves
    ancestors, latest, leaves = list(range(n)), [-1] * n, [-1] * n
    for column, (parent, first) in enumerate(zip(parents, firsts, strict=True)):
        if parent != -1:
            counts[parent] -= 1
        for row in columns[starts[column] : starts[column + 1]]:
            if first <= latest[row]:
                continue
            latest[row], before = first, leaves[row]
            leaves[row] = column
            counts[column] += 1
            if before != -1:
                root = before
                while root != ancestors[root]:
                    root = ancestors[root]
                while before != root:  # paths are shortened on the way
                    ancestors[before], before = root, ancestors[before]
                counts[root] -= 1
        if parent != -1:
            ancestors[column] = parent
    for column, parent in enumerate(parents):
        if parent != -1:
            counts[parent] += counts[column]
    return np.asarray(counts, np.intp)
