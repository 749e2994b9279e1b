"""Kernels of solves on the host: NumPy's and LAPACK's, on the streams of a host device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product, repeat
from typing import final

import numpy as np

from ooc_chol.interfaces import AbstractStream, Tile
from ooc_chol.kernels.host.streams import enqueue
from ooc_chol.kernels.interfaces import AbstractSolveKernels
from ooc_chol.process import blas_buffers
from ooc_chol.process.scipy_modules import linalg_module

_flapack, _fblas = linalg_module("_flapack"), linalg_module("_fblas")
#: The triangular solve of real types.
_TRTRS = {np.dtype(np.float64): _flapack.dtrtrs, np.dtype(np.float32): _flapack.strtrs}
#: TRSM of each type.
_TRSM = {
    np.dtype(np.float64): _fblas.dtrsm,
    np.dtype(np.float32): _fblas.strsm,
    np.dtype(np.complex128): _fblas.ztrsm,
    np.dtype(np.complex64): _fblas.ctrsm,
}
#: Columns from which TRSM in place is faster than TRTRS, which wants column-major right-hand sides: 52 instead of 30 GFLOP/s at
#: 3,000 columns of a tile of 2048, but 20 instead of 50 at 64.
_MANY = 512
_RIGHT, _AS_IT_IS, _ADJOINT = 1, 0, 2


def substitute(l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
    """``x_k = inv(l_kk) @ x_k``, or with its adjoint, by LAPACK itself: ``solve_triangular`` takes 6 µs more."""
    if x_k.dtype not in _TRTRS or (x_k.shape[1] >= _MANY and l_kk.diagonal().all()):
        # U = l_kk.T is upper and column-major: inv(L) @ x is (x.T @ inv(U)).T, and inv(L.H) @ x is (x.T @ inv(U.H)).T
        how = _ADJOINT if transposed else _AS_IT_IS
        put(x_k, _TRSM[x_k.dtype](1.0, l_kk.T, x_k.T, side=_RIGHT, trans_a=how, overwrite_b=1).T)
        return
    # row-major and lower is column-major and upper, transposed
    x_k[...], info = _TRTRS[x_k.dtype](l_kk.T, x_k, lower=0, trans=int(not transposed), overwrite_b=1)
    if info > 0:
        raise np.linalg.LinAlgError(f"L[{info - 1}, {info - 1}] of a diagonal tile is 0")


def put(x: Tile, result: Tile) -> None:
    """Copy what a routine returned to ``x``, unless it worked in place there."""
    if not np.may_share_memory(x, result):
        x[...] = result


@final
class HostSolveKernels(AbstractSolveKernels):
    """Kernels that take NumPy arrays; each is one or two calls of the libraries, with as many threads as these may use."""

    def lend(self, stream: AbstractStream, workspace: Tile) -> None:
        """Nothing, as products on the host need no workspace of ours."""

    def substitute(self, stream: AbstractStream, l_kk: Tile, x_k: Tile, *, transposed: bool) -> None:
        def run() -> None:
            substitute(l_kk, x_k, transposed=transposed)

        _enqueue(stream, run)

    def subtract(self, stream: AbstractStream, target: Tile, l_ij: Tile, x: Tile, *, transposed: bool) -> None:
        def run() -> None:
            target[...] -= (l_ij.conj().T if transposed else l_ij) @ x

        _enqueue(stream, run)

    def multiply_each(self, stream: AbstractStream, out: Tile, tiles: Tile, x: Tile, *, transposed: bool) -> None:
        def run() -> None:
            for target, tile, part in zip(out, tiles, x if x.ndim == out.ndim else repeat(x), strict=False):
                np.matmul(tile.conj().T if transposed else tile, part, out=target)

        _enqueue(stream, run)

    def subtract_products(self, stream: AbstractStream, targets: Tile, products: Tile, which: Sequence[int]) -> None:
        def run() -> None:
            for at, term in product(which, range(products.shape[1])):
                targets[at] -= products[at, term]

        _enqueue(stream, run)

    def add_product(
        self, stream: AbstractStream, target: Tile, d: Tile, x: Tile, *, transposed: bool = False, halved: bool = False
    ) -> None:
        def run() -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # what is no number makes sums that are none
                product = (d.conj().T if transposed else d) @ x
                if halved:
                    product *= 0.5
                target[...] += product

        _enqueue(stream, run)

    def inner(self, stream: AbstractStream, a: Tile, b: Tile, out: Tile) -> None:
        def run() -> None:
            out[0] = np.vdot(a, b)

        _enqueue(stream, run)

    def form(self, stream: AbstractStream, vectors: tuple[Tile, Tile], d: Tile, scratch: Tile, out: Tile) -> None:
        left, right = vectors

        def run() -> None:
            out[0] = left @ np.matmul(d, right, out=scratch[: len(d)])

        _enqueue(stream, run)

    def add_column_squares(self, stream: AbstractStream, x: Tile, out: Tile) -> None:
        def run() -> None:
            out[...] += np.einsum("ij,ij->j", x, x)

        _enqueue(stream, run)


def _enqueue(stream: AbstractStream, run: Callable[[], None]) -> None:
    """Enqueue calls of NumPy's and SciPy's BLAS."""

    def ready() -> None:
        blas_buffers.ensure(numpys=True)
        run()

    enqueue(stream, ready)
