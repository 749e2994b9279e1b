"""Where the entries of a sparse matrix stand: checked once, transposed once, shared by every operation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, final
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from ooc_chol.diff.canonical import Canonical, made_canonical
from ooc_chol.diff.checks import check_ascending, check_floats, check_range, check_starts, checked_shape, counted, whole
from ooc_chol.diff.memory import Array, IndexArray, index_type
from ooc_chol.diff.orders import by_columns, frozen
from ooc_chol.diff.sources import float_rows
from ooc_chol.process.fork_safety import new_lock, new_rlock

#: Letters of a name that was put together of others; products of products would have names of any length.
_LONGEST_NAME = 80


class PatternArrays(NamedTuple):
    """The index arrays of a pattern in one memory."""

    indptr: Array  #: (n_rows + 1,) starts of rows
    indices: Array  #: (nnz,) columns
    rows: Array  #: (nnz,) rows
    transposing: Array  #: (nnz,) order that makes values of the transpose
    back: Array  #: (nnz,) its inverse


@final
class Pattern:
    """Places of the entries of a sparse matrix in compressed rows: columns ascend in each row, and none comes twice.

    Parameters
    ----------
    indptr : (n_rows + 1,) array_like of int
        Where each row begins among the entries; the last is their number.
    indices : (nnz,) array_like of int
        Columns of the entries, row by row, ascending in each.
    shape : (int, int)
        Rows and columns.
    name : str
        Name in errors.

    Raises
    ------
    SparseInputError
        ``indptr`` does not begin with 0, falls, or does not end with the number of entries; a column is outside of the matrix,
        comes twice in a row, or before a smaller one. The error names the row.
    TypeError
        The arrays are not of whole numbers.

    Notes
    -----
    The arrays are copied (4 bytes an entry), so that nobody changes them. What is made of a pattern (its transpose, the rows of
    entries, copies on devices) is made when first asked for, and kept: make a pattern once, and hand it around. Two patterns with
    the same entries and shape are equal.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 2, 3], [0, 2, 1], (2, 3))
    >>> pattern
    Pattern(2 x 3, 3 entries)
    >>> pattern.transposed.indices.tolist(), pattern.transposing.tolist()
    ([0, 1, 0], [0, 2, 1])
    """

    def __init__(self, indptr: ArrayLike, indices: ArrayLike, shape: tuple[int, int], *, name: str = "the pattern") -> None:
        self.name = name
        self.shape = checked_shape(shape, name)
        starts, columns = whole(indptr, "indptr", name), whole(indices, "indices", name)
        check_starts(starts, columns.size, self.shape[0], name)
        check_range(starts, columns, self.shape[1], name)
        check_ascending(starts, columns, name)
        self.indptr: NDArray[Any] = frozen(starts, index_type(columns.size))
        self.indices: NDArray[np.int32] = frozen(columns, np.int32)
        self._start()

    @classmethod
    def canonical(cls, indptr: ArrayLike, indices: ArrayLike, shape: tuple[int, int], *, name: str = "the pattern") -> Canonical:
        """Take entries in any order, some of them more than once: sort them, and merge those of the same place.

        Parameters
        ----------
        indptr, indices, shape, name
            As for a pattern, whose rows need not be sorted.

        Returns
        -------
        Canonical
            The pattern, how values come to it, and how many rows were sorted and entries merged.

        Raises
        ------
        SparseInputError, TypeError
            As for a pattern, order and duplicates aside.

        Examples
        --------
        >>> import numpy as np
        >>> import ooc_chol as oc
        >>> found = oc.diff.Pattern.canonical([0, 3], [2, 0, 2], (1, 3))
        >>> found
        Canonical(1 x 3, 2 entries; 1 row was sorted, 1 entry was merged into another)
        >>> found.values(np.array([1.0, 2.0, 3.0])).tolist()
        [2.0, 4.0]
        """
        starts, columns = whole(indptr, "indptr", name), whole(indices, "indices", name)
        size = checked_shape(shape, name)
        check_starts(starts, columns.size, size[0], name)
        check_range(starts, columns, size[1], name)
        return made_canonical(starts, columns, size, name, trusted)

    @classmethod
    def of(cls, matrix: Any, *, name: str = "the matrix") -> tuple[Pattern, NDArray[Any]]:
        """The pattern and the values of a matrix.

        Parameters
        ----------
        matrix : sparse or dense matrix, graph, or str
            Matrix in any format that :func:`ooc_chol.block_csr` packs; entries that are stored stay, zeros among them, and
            duplicates are summed.
        name : str
            Name in errors.

        Returns
        -------
        pattern : Pattern
            Where its entries stand.
        values : (nnz,) array
            The values there, float32 or float64, of whole numbers the latter. No copy where it is in compressed rows already.

        Raises
        ------
        TypeError
            It is no matrix.

        Examples
        --------
        >>> from scipy.sparse import diags_array
        >>> import ooc_chol as oc
        >>> pattern, values = oc.diff.Pattern.of(diags_array([1.0, 2.0]))
        >>> pattern, values.tolist()
        (Pattern(2 x 2, 2 entries), [1.0, 2.0])
        """
        rows = float_rows(matrix, name)
        found = cls.canonical(rows.indptr, rows.indices, rows.shape, name=name)
        return found.pattern, found.values(rows.data)

    @property
    def matrix_name(self) -> str:
        """Name that errors use for a matrix on the pattern, which may be named after one."""
        return self.name if "the matrix" in self.name else f"the matrix of {self.name}"

    @property
    def n_rows(self) -> int:
        """Rows."""
        return self.shape[0]

    @property
    def n_columns(self) -> int:
        """Columns."""
        return self.shape[1]

    @property
    def nnz(self) -> int:
        """Entries."""
        return int(self.indices.size)

    @property
    def rows(self) -> NDArray[np.int32]:
        """The row of each entry."""
        return self._array("rows").host

    @property
    def transposing(self) -> NDArray[Any]:
        """The order that makes values of the transpose: ``values_of_T = values[transposing]``."""
        return self._array("transposing").host

    @property
    def back(self) -> NDArray[Any]:
        """The inverse of ``transposing``."""
        return self._array("back").host

    @property
    def transposed(self) -> Pattern:
        """The pattern of the transpose, whose own transpose is this pattern as long as somebody has it."""
        with self._lock:
            origin = None if self._origin is None else self._origin()
            if origin is not None:
                return origin
            if self._transposed is None:
                self._transpose()
            assert self._transposed is not None
            return self._transposed

    @cached_property
    def diagonal_places(self) -> NDArray[np.int64]:
        """Places of the diagonal entries, ``min(shape)`` of them; -1 where there is none."""
        found = np.full(min(self.shape), -1, np.int64)
        at = np.flatnonzero(self.rows == self.indices)
        found[self.indices[at]] = at
        found.setflags(write=False)
        return found

    @cached_property
    def diagonal(self) -> IndexArray:
        """``diagonal_places``, to be copied to devices."""
        return IndexArray(self.diagonal_places)

    def tril(self, k: int = 0) -> Part:
        """The entries with ``column <= row + k``."""
        return self._part("tril", k)

    def triu(self, k: int = 0) -> Part:
        """The entries with ``column >= row + k``."""
        return self._part("triu", k)

    def on(self, like: Array) -> PatternArrays:
        """The index arrays in the memory of another array: the pattern's own for NumPy's or None, else copies that are kept."""
        return PatternArrays(*(self._array(name).on(like) for name in PatternArrays._fields))

    def place(self, name: str, like: Array) -> Array:
        """One index array of :class:`PatternArrays` in the memory of another array: only what is asked for is made."""
        return self._array(name).on(like)

    def check_values(self, values: Array, what: str = "values") -> None:
        """Refuse what cannot be the values of this pattern.

        Raises
        ------
        ValueError
            They are not as many as the entries, or not in one dimension.
        TypeError
            They are of neither float32 nor float64, or no array.
        """
        check_floats(values, what)
        if values.shape != (self.nnz,):
            raise ValueError(
                f"{what} has shape {tuple(values.shape)}, but {self.name} ({self.size_text}) has {self.nnz} entries: "
                f"give an array of shape ({self.nnz},), one value for each entry, in the order of indices"
            )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Pattern):
            return NotImplemented
        if self.shape != other.shape or self.nnz != other.nnz:
            return False
        return np.array_equal(self.indptr, other.indptr) and np.array_equal(self.indices, other.indices)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Pattern({self.size_text})"

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Pattern:
        return self  # it never changes

    __copy__ = __deepcopy__

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.indptr, self.indices, self.shape, self.name)

    @cached_property
    def _hash(self) -> int:
        digest = xxhash.xxh3_64(repr(self.shape).encode())
        digest.update(self.indptr.data)
        digest.update(self.indices.data)
        return digest.intdigest()

    @property
    def size_text(self) -> str:
        """Rows, columns and entries in words."""
        return f"{self.shape[0]} x {self.shape[1]}, {counted(self.nnz, 'entry', 'entries')}"

    def _start(self) -> None:
        """Nothing is made of the pattern yet."""
        self._arrays: dict[str, IndexArray] = {}
        self._parts: dict[tuple[str, int], Part] = {}
        self._pairs: WeakKeyDictionary[Pattern, dict[str, Any]] = WeakKeyDictionary()
        self._transposed: Pattern | None = None
        #: What this was made of as the transpose. It holds this one; not the other way round, so that both go at once.
        self._origin: ReferenceType[Pattern] | None = None
        self._lock = new_rlock()
        #: Held while the other pattern's arrays are made under its own lock, by a thread that never holds two of these.
        self._making = new_lock()

    def with_other(self, other: Pattern, what: str, make: Callable[[Pattern, Pattern], Any]) -> Any:
        """Return what ``make`` gives for this pattern and another one, such as their product's structure: once, kept with both.

        It must hold neither of them, or the other one would never go; ``make`` calls this for the same pattern no more.
        """
        with self._making:
            kept = self._pairs.setdefault(other, {})
            if what not in kept:
                kept[what] = make(self, other)
            return kept[what]

    def _array(self, name: str) -> IndexArray:
        """One of the index arrays, made when first asked for."""
        with self._lock:
            if name not in self._arrays:
                if name in ("indptr", "indices"):
                    self._arrays[name] = IndexArray(getattr(self, name))
                elif name == "rows":
                    self._arrays[name] = IndexArray(np.repeat(np.arange(self.n_rows, dtype=np.int32), np.diff(self.indptr)))
                else:
                    self._transpose()
            return self._arrays[name]

    def _transpose(self) -> None:
        """Make the transpose, and the orders to it and back."""
        columns = self.n_columns
        starts, rows, order = by_columns(self.indptr, self.indices, columns)
        other = trusted(starts, rows, (columns, self.n_rows), f"the transpose of {self.name}")
        inverse = np.empty_like(order)
        inverse[order] = np.arange(order.size, dtype=order.dtype)
        other._arrays["back"] = self._arrays.setdefault("transposing", IndexArray(order))
        other._arrays["transposing"] = self._arrays.setdefault("back", IndexArray(inverse))
        self._transposed, other._origin = other, ref(self)

    def _part(self, kind: str, k: int) -> Part:
        k = operator.index(k)
        with self._lock:
            if (kind, k) not in self._parts:
                difference = self.indices.astype(np.int64) - self.rows
                inside = difference <= k if kind == "tril" else difference >= k
                self._parts[kind, k] = _part_of(self, inside, f"{kind}({self.name})")
            return self._parts[kind, k]


class Part(NamedTuple):
    """Some of the entries of a pattern: ``values_of_part = values[places]``."""

    pattern: Pattern
    places: IndexArray


def _again(indptr: NDArray[Any], indices: NDArray[Any], shape: tuple[int, int], name: str) -> Pattern:
    """A pattern that was pickled or copied."""
    return Pattern(indptr, indices, shape, name=name)


def trusted(starts: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int], name: str) -> Pattern:
    """A pattern of arrays that are known to be right."""
    pattern = Pattern.__new__(Pattern)
    pattern.name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
    pattern.shape = shape
    pattern.indptr = starts.astype(index_type(columns.size), copy=False)
    pattern.indices = columns.astype(np.int32, copy=False)
    pattern.indptr.setflags(write=False)
    pattern.indices.setflags(write=False)
    pattern._start()
    return pattern


def _part_of(whole: Pattern, inside: NDArray[np.bool_], name: str) -> Part:
    """The entries of a pattern for which something is true."""
    places = np.flatnonzero(inside).astype(index_type(whole.nnz), copy=False)
    before = np.concatenate([[0], np.cumsum(inside, dtype=np.int64)])
    return Part(trusted(before[whole.indptr], whole.indices[places], whole.shape, name), IndexArray(places))
