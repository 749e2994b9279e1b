"""Sparse matrices of torch, SciPy and NumPy as a pattern and a tensor of values that autograd follows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from ooc_chol.diff.canonical import Canonical
from ooc_chol.diff.checks import check_floats, counted
from ooc_chol.diff.functions import transpose
from ooc_chol.diff.memory import IndexArray
from ooc_chol.diff.ops import Gather
from ooc_chol.diff.pattern import Pattern
from ooc_chol.diff.sources import float_rows
from ooc_chol.diff.torch_arrays import on_host
from ooc_chol.diff.torch_function import apply, differentiated_once
from ooc_chol.files.inputs import plain_array

_FLOATS = (torch.float32, torch.float64)


class Entries(NamedTuple):
    """A matrix as its pattern and values, and in words what was done to what was given."""

    pattern: Pattern
    values: Tensor
    said: str = ""


def checked_tensor(given: Any, what: str) -> Tensor:
    """A dense tensor of real floating-point numbers, as it is."""
    if not isinstance(given, Tensor):
        advice = f", such as torch.from_numpy({what})" if isinstance(given, np.ndarray) else ""
        raise TypeError(f"{what} is a {type(given).__name__}: give a tensor of torch{advice}")
    if given.layout != torch.strided:
        raise TypeError(f"{what} has the layout {given.layout}: give a dense tensor")
    if given.dtype not in _FLOATS:
        raise TypeError(
            f"{what} is of {given.dtype}: only real floating-point numbers are differentiated, torch.float32 or torch.float64"
        )
    if given.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{what} lies on {given.device}: give a tensor of the CPU or of a CUDA device")
    return given


def checked_values(pattern: Pattern, values: Any) -> Tensor:
    """A tensor of one value for each entry of a pattern."""
    tensor = checked_tensor(values, "values")
    if tensor.shape != (pattern.nnz,):
        raise ValueError(
            f"values has shape {tuple(tensor.shape)}, but {pattern!r} has {counted(pattern.nnz, 'entry', 'entries')}: "
            f"give a tensor of shape ({pattern.nnz},), one value for each, in the order of indices"
        )
    return tensor


def check_together(**tensors: Tensor) -> None:
    """Refuse tensors of several types or devices."""
    (first, of), *others = tensors.items()
    for name, tensor in others:
        if tensor.dtype != of.dtype:
            raise TypeError(f"{first} is of {of.dtype}, but {name} of {tensor.dtype}: give both in one type")
        if tensor.device != of.device:
            raise ValueError(f"{first} lies on {of.device}, but {name} on {tensor.device}: move one with .to(device) first")


def entries_of(a: Any) -> Entries:
    """The pattern and values of a matrix; the values of a tensor of torch stay connected with it."""
    if isinstance(a, Tensor):
        return _of_tensor(a)
    if scipy.sparse.issparse(a) and a.dtype.kind not in "iub":
        return _of_scipy(a)
    if isinstance(a, np.ndarray) and a.dtype.kind not in "iub":
        return _of_tensor(_copied(plain_array("the matrix", a)))
    return _of_scipy(float_rows(a, "the matrix"))


def canonical_entries(indptr: Any, indices: Any, values: Any, shape: tuple[int, int]) -> Entries:
    """Entries in any order: rows sorted, entries of one place added, and both said."""
    found = Pattern.canonical(_host(indptr), _host(indices), shape, name="the matrix")
    return Entries(found.pattern, found.values(checked_tensor(values, "values"), apply=apply), _said(found))


def _said(found: Canonical) -> str:
    """Changes made to the entries that were given, in words."""
    rows = f"{counted(found.sorted_rows, 'row was', 'rows were')} sorted" if found.sorted_rows else ""
    merged = f"{counted(found.merged, 'entry was added to another', 'entries were added to others')}" if found.merged else ""
    return ", ".join(filter(None, (rows, merged)))


def _of_tensor(a: Tensor) -> Entries:
    """The entries of a tensor of any layout; of a dense one those that are not zero."""
    if a.dim() != 2:
        raise ValueError(f"the matrix has shape {tuple(a.shape)}: give one of two dimensions")
    shape = (int(a.shape[0]), int(a.shape[1]))
    if a.layout == torch.sparse_csr:
        return canonical_entries(a.crow_indices(), a.col_indices(), _values_of(a), shape)
    if a.layout == torch.sparse_csc:
        columns = canonical_entries(a.ccol_indices(), a.row_indices(), _values_of(a), shape[::-1])
        return Entries(*transpose(columns.pattern, columns.values, apply=apply), columns.said)
    if a.layout in (torch.sparse_coo, torch.sparse_bsr, torch.sparse_bsc):
        return _of_coo(a.to_sparse_coo(), shape)  # type: ignore[no-untyped-call]
    tensor = checked_tensor(a, "the matrix")
    rows, columns = (_host(each) for each in torch.nonzero(tensor.detach(), as_tuple=True))
    pattern = Pattern(_starts(rows, shape[0]), columns, shape, name="the matrix")
    return Entries(pattern, apply(Gather(IndexArray(rows * shape[1] + columns), tensor.numel()), tensor.reshape(-1)))


def _values_of(a: Tensor) -> Tensor:
    """The values of a sparse tensor, which torch can differentiate once."""
    return differentiated_once(
        a.values(), "CSR.from_entries(indptr, indices, values, shape) of its values, or CSR.of a dense tensor"
    )


def _of_coo(a: Tensor, shape: tuple[int, int]) -> Entries:
    """The entries of a tensor in coordinates; torch adds those of one place."""
    if a.sparse_dim() != 2:
        raise ValueError(
            f"the matrix has {a.sparse_dim()} sparse dimension and {a.dense_dim()} dense: give one with two sparse ones"
        )
    given = a._nnz()
    together = a.coalesce()
    rows, columns = _host(together.indices())
    found = canonical_entries(_starts(rows, shape[0]), columns, _values_of(together), shape)
    merged = given - found.pattern.nnz
    said = counted(merged, "entry was added to another", "entries were added to others") if merged else ""
    return found._replace(said=said)


def _of_scipy(a: Any) -> Entries:
    """The entries of a sparse matrix of SciPy, copied; of coordinates as they are, since SciPy adds without a word."""
    if a.ndim != 2:
        raise ValueError(f"the matrix has shape {a.shape}: give one of two dimensions")
    if a.format != "coo":
        rows = a.tocsr()
        return canonical_entries(rows.indptr, rows.indices, _copied(rows.data), rows.shape)
    order = np.argsort(a.row, kind="stable")
    values = _copied(a.data)[torch.from_numpy(order)]
    return canonical_entries(_starts(a.row, a.shape[0]), a.col[order], values, a.shape)


def _copied(array: NDArray[Any]) -> Tensor:
    """A tensor of the numbers of an array of NumPy, in this machine's order of bytes."""
    copy = array.astype(array.dtype.newbyteorder("="), order="C")
    check_floats(copy, "the matrix")
    return torch.from_numpy(np.asarray(copy))


def _starts(rows: NDArray[Any], n_rows: int) -> NDArray[np.int64]:
    """Where each row begins among entries that are sorted by row."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))]).astype(np.int64)


def _host(numbers: Any) -> Any:
    """A tensor as NumPy's; anything else as it is."""
    return on_host(numbers) if isinstance(numbers, Tensor) else numbers
