"""Sparse matrices in a GPU's memory as sources: the rows of the same matrix on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import ooc_chol as oc
from tests.host.sparse_rows import assembled, same
from tests.inside.sparse import compressed, rows_of, scattered

pytestmark = pytest.mark.cuda


def matrix(fmt: str, dtype: str = "float64") -> Any:
    """A matrix on the host; entries of COO are repeated."""
    random = np.random.default_rng(3)
    values = random.integers(0, 5, 900).astype(dtype)
    return sp.coo_matrix((values, (random.integers(0, 70, 900), random.integers(0, 50, 900))), shape=(70, 50)).asformat(fmt)


def on_gpu(host: Any) -> Any:
    """The same matrix in cupyx."""
    import cupyx.scipy.sparse

    return getattr(cupyx.scipy.sparse, f"{host.format}_matrix")(host)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fmt", ["csr", "csc", "coo"])
def test_rows_of_cupyx_are_those_of_the_host(fmt: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (compressed, scattered):
        monkeypatch.setattr(module, "RUN_ENTRIES", 64)
    monkeypatch.setattr(scattered, "PIECE_ENTRIES", 128)
    host = matrix(fmt, dtype)
    rows = rows_of(on_gpu(host))
    assert same(assembled(rows), host)
    assert rows.name == f"{fmt}_matrix"


def test_columns_of_cupyx_in_no_order_are_sorted_on_the_host_alone() -> None:
    import cupy

    device = on_gpu(matrix("csr"))
    first, second = (int(start) for start in device.indptr[:2].get())
    device.indices[first:second] = device.indices[first:second][::-1].copy()
    before = device.indices.get()
    assembled(rows_of(device))
    assert np.array_equal(cupy.asnumpy(device.indices), before)


def test_what_is_not_finite_on_a_gpu_is_named() -> None:
    device = on_gpu(matrix("csr"))
    device.data[0] = np.nan
    row, col = int(np.argmax(device.indptr.get() > 0)) - 1, int(device.indices[0].get())
    with pytest.raises(oc.errors.NonFiniteError) as caught:
        list(rows_of(device).runs())
    assert (caught.value.row, caught.value.col) == (row, col)


@pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch's own, at the first sparse tensor of a process
@pytest.mark.package("torch")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_tensors_of_pytorch(layout: str, device: str) -> None:
    import torch

    host = matrix(layout)
    if layout == "coo":
        tensor = torch.sparse_coo_tensor(np.stack([host.row, host.col]), host.data, host.shape, check_invariants=True)
    else:
        parts = map(torch.from_numpy, (host.indptr, host.indices, host.data))
        tensor = torch.sparse_csr_tensor(*parts, size=host.shape, check_invariants=True)
    assert same(assembled(rows_of(tensor.to(device))), host)
