"""The primitives: arrays in, arrays out, of NumPy or CuPy, with sums in a fixed order. Nothing here knows about gradients.

Each is bilinear or a gather, and the derivatives of each are among the others: see :mod:`ooc_chol.diff.ops`.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_chol.diff import host
from ooc_chol.diff.checks import check_floats, check_places, check_segments
from ooc_chol.diff.memory import Array, cuda_values, device_of
from ooc_chol.diff.orders import taken

if TYPE_CHECKING:
    from ooc_chol.diff.pattern import Pattern


def matmul(pattern: Pattern, v: Array, x: Array, *, precision: str | None = None) -> Array:
    """``A @ x``.

    Parameters
    ----------
    pattern : Pattern
        Pattern of A, (n_rows, n_columns).
    v : (nnz,) array
        Values of A, float32 or float64.
    x : (n_columns,) or (n_columns, k) array
        Vectors that A is multiplied with, of the type and in the memory of ``v``.
    precision : {"FDF"}, optional
        Multiply and add float32 numbers in float64. The type of ``v`` otherwise.

    Returns
    -------
    (n_rows,) or (n_rows, k) array
        The product, of the type of ``v``.

    Raises
    ------
    ValueError
        A shape does not fit, or the arrays lie in different memories.
    TypeError
        The types differ, or are neither float32 nor float64; "FDF" was asked of float64.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 2, 3], [0, 2, 1], (2, 3))
    >>> oc.diff.matmul(
    ...     pattern, np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0, 100.0])
    ... ).tolist()
    [201.0, 30.0]
    """
    pattern.check_values(v, "v")
    _check_panel(x, "x", pattern.n_columns, f"columns of {pattern!r}")
    module, compute = _where(precision, v=v, x=x)
    return module.matmul(pattern, v, x, compute)


def matmul_transposed(pattern: Pattern, v: Array, y: Array, *, precision: str | None = None) -> Array:
    """``A.T @ y`` for the values v of A, none of which is copied; as :func:`matmul`."""
    pattern.check_values(v, "v")
    _check_panel(y, "y", pattern.n_rows, f"rows of {pattern!r}")
    module, compute = _where(precision, v=v, y=y)
    if module is host:
        return host.matmul_transposed(pattern, v, y, compute)
    return module.matmul(pattern.transposed, v, y, compute, pattern.place("transposing", v))


def sampled(pattern: Pattern, g: Array, x: Array, *, precision: str | None = None) -> Array:
    """The entries of ``g @ x.T`` that stand on a pattern: the gradient of ``A @ x`` with respect to the values of A.

    Parameters
    ----------
    pattern : Pattern
        Where entries are wanted, (n_rows, n_columns).
    g : (n_rows,) or (n_rows, k) array
        Left factor, float32 or float64.
    x : (n_columns,) or (n_columns, k) array
        Right factor.
    precision : {"FDF"}, optional
        As for :func:`matmul`.

    Returns
    -------
    (nnz,) array
        ``sum over k of g[row, k] * x[column, k]``.

    Raises
    ------
    ValueError, TypeError
        As for :func:`matmul`; the columns of g and x differ.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> pattern = oc.diff.Pattern([0, 2, 3], [0, 2, 1], (2, 3))
    >>> oc.diff.sampled(
    ...     pattern, np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])
    ... ).tolist()
    [3.0, 5.0, 8.0]
    """
    _check_panel(g, "g", pattern.n_rows, f"rows of {pattern!r}")
    _check_panel(x, "x", pattern.n_columns, f"columns of {pattern!r}")
    if g.shape[1:] != x.shape[1:]:
        raise ValueError(f"g has shape {tuple(g.shape)} and x {tuple(x.shape)}: they must have as many columns")
    module, compute = _where(precision, g=g, x=x)
    return module.sampled(pattern, g, x, compute)


def bilinear(ends: Array, of_a: Array, of_b: Array, a: Array, b: Array, *, precision: str | None = None) -> Array:
    """Gather, multiply and add: entry c is the sum of ``a[of_a[t]] * b[of_b[t]]`` over t from ``ends[c]`` to ``ends[c + 1]``.

    Parameters
    ----------
    ends : (count + 1,) array of int
        Segments, ascending from 0.
    of_a, of_b : (triples,) array of int
        Places in a and in b.
    a, b : (n_a,) and (n_b,) array
        Values, float32 or float64, in one memory with the places.
    precision : {"FDF"}, optional
        As for :func:`matmul`.

    Returns
    -------
    (count,) array
        The sums, of the type of ``a``.

    Raises
    ------
    ValueError, TypeError
        As for :func:`matmul`.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_chol as oc
    >>> a, b = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    >>> oc.diff.bilinear(
    ...     np.array([0, 2, 2]), np.array([0, 1]), np.array([0, 1]), a, b
    ... ).tolist()
    [13.0, 0.0]
    """
    _check_vector(a, "a")
    _check_vector(b, "b")
    if of_a.shape != of_b.shape:
        raise ValueError(f"of_a has shape {tuple(of_a.shape)} and of_b {tuple(of_b.shape)}: a triple has a place in each")
    module, compute = _where(precision, places={"ends": ends, "of_a": of_a, "of_b": of_b}, a=a, b=b)
    if module is host:
        check_segments(ends, of_a.size)
        check_places(of_a, a.size, "of_a")
        check_places(of_b, b.size, "of_b")
    return module.bilinear(ends, of_a, of_b, a, b, compute)


def permute(v: Array, order: Array) -> Array:
    """``v[order]``, such as the values of the transpose.

    Parameters
    ----------
    v : (n,) array
        Values, float32 or float64.
    order : (n,) array of int
        A permutation, in the memory of v; that each place comes once is not looked at.

    Returns
    -------
    (n,) array
        The values in that order.
    """
    _check_vector(v, "v")
    if order.shape != v.shape:
        raise ValueError(f"the order has {order.size} places for {v.size} values: a permutation has as many")
    module, _ = _where(None, places={"order": order}, v=v)
    if module is host:
        check_places(order, v.size, "order")
    return taken(v, order) if module is host else v[order]


def gather(v: Array, places: Array) -> Array:
    """``v[places]``, and 0 where a place is -1; no place comes twice, so that :func:`scatter` is the transpose."""
    _check_vector(v, "v")
    module, _ = _where(None, places={"places": places}, v=v)
    if module is host:
        check_places(places, v.size, "places", least=-1)
    return module.gather(v, places)


def scatter(v: Array, places: Array, n: int) -> Array:
    """Zeros of length n with ``v`` at ``places``, which are unique; what has the place -1 goes nowhere."""
    _check_vector(v, "v")
    if places.shape != v.shape:
        raise ValueError(f"there are {places.size} places for {v.size} values: give one for each")
    module, _ = _where(None, places={"places": places}, v=v)
    if module is host:
        check_places(places, n, "places", least=-1)
    return module.scatter(v, places, n)


def row_sums(pattern: Pattern, v: Array, *, precision: str | None = None) -> Array:
    """The sum of each row, (n_rows,), its entries added in their order."""
    pattern.check_values(v, "v")
    return segment_sums(pattern.place("indptr", v), v, precision=precision)


def spread(pattern: Pattern, d: Array) -> Array:
    """For each entry the number of its row, ``d[row]``, (nnz,): the transpose of :func:`row_sums`."""
    _check_vector(d, "d")
    if len(d) != pattern.n_rows:
        raise ValueError(f"d has {len(d)} numbers, but {pattern!r} has {pattern.n_rows} rows: give one for each")
    rows = pattern.place("rows", d)
    return taken(d, rows) if isinstance(d, np.ndarray) else d[rows]


def segment_sums(ends: Array, v: Array, *, precision: str | None = None) -> Array:
    """The sum of each segment ``v[ends[c] : ends[c + 1]]``, in order."""
    _check_vector(v, "v")
    module, compute = _where(precision, places={"ends": ends}, v=v)
    if module is host:
        check_segments(ends, v.size)
    return module.segment_sums(ends, v, compute)


def _where(precision: str | None, places: dict[str, Array] | None = None, **values: Array) -> tuple[Any, np.dtype[Any]]:
    """The module that computes with these arrays, and the type in which it does."""
    (first, of), *others = values.items()
    for name, array in others:
        if array.dtype != of.dtype:
            raise TypeError(f"{first} is of {of.dtype}, but {name} of {array.dtype}: give both in one type")
    device = device_of(of)
    for name, array in (*others, *(places or {}).items()):
        if (other := device_of(array)) != device:
            raise ValueError(f"{first} lies in {_memory(device)}, but {name} in {_memory(other)}: copy one to the other first")
    module: ModuleType = host if device is None else cuda_values()
    return module, compute_type(of.dtype, precision)


def compute_type(storage: np.dtype[Any], precision: str | None) -> np.dtype[Any]:
    """The type in which is multiplied and added."""
    if precision is None:
        return storage
    if precision != "FDF":
        raise ValueError(
            f"precision is {precision!r}: give 'FDF' for float64 sums of float32, or None for the type of the values"
        )
    if storage != np.float32:
        raise TypeError(f"precision='FDF' adds float32 numbers in float64, but these are {storage} already: leave precision out")
    return np.dtype(np.float64)


def _memory(device: int | None) -> str:
    return "host memory" if device is None else f"memory of cuda:{device}"


def _check_vector(v: Array, what: str) -> None:
    check_floats(v, what)
    if v.ndim != 1:
        raise ValueError(f"{what} has shape {tuple(v.shape)}: give a vector")


def _check_panel(x: Array, what: str, length: int, of: str) -> None:
    check_floats(x, what)
    if x.ndim not in (1, 2) or x.shape[0] != length:
        raise ValueError(f"{what} has shape {tuple(x.shape)}, but there are {length} {of}: give ({length},) or ({length}, k)")
