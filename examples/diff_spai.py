"""A sparse approximate inverse: the entries of M, which has the pattern of A, minimize ||I - M A||_F^2.

Poisson's matrix on a square of n x n points, and steepest descent with exact line search until the gradient's norm is below
0.01, as in section 4.6 of Nytko et al. (2022), "Optimized sparse matrix operations for reverse mode automatic differentiation".
M A is a product of two sparse matrices, and the gradient has the pattern of M. Row by row the same minimum comes from small
least-squares problems, which are solved beside.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, eye_array, kron

from ooc_chol.diff.torch import CSR

#: Norm of the gradient at which the descent ends, and most of its steps.
GRADIENT, MOST_STEPS = 1e-2, 1000


def poisson(n: int) -> csr_array:
    """Poisson's matrix on a square of n x n points."""
    line = diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    return csr_array(kron(line, eye_array(n)) + kron(eye_array(n), line))


def descend(A: CSR, identity: CSR) -> tuple[CSR, float, int]:
    """M, ||I - M A||_F^2, and the number of steps, from ones on the pattern of A."""
    M = CSR(torch.ones_like(A.values, requires_grad=True), A.pattern)
    for step in range(MOST_STEPS):
        residual = identity - M @ A
        loss = (residual.values**2).sum()
        (gradient,) = torch.autograd.grad(loss, M.values)
        if gradient.norm() < GRADIENT:
            return M, loss.item(), step
        change = CSR(gradient, M.pattern) @ A  # on the pattern of the residual, which holds the diagonal
        length = (residual.values * change.values).sum() / (change.values**2).sum()
        M = CSR((M.values + length * gradient).detach().requires_grad_(), M.pattern)
    raise RuntimeError(f"the gradient's norm is {gradient.norm():.3g} after {MOST_STEPS} steps")


def least_squares(a: csr_array) -> float:
    """The least ||I - M A||_F^2, by one small dense problem for each row of M."""
    total, columns = 0.0, np.eye(a.shape[0])
    for i in range(a.shape[0]):
        places = a.indices[a.indptr[i] : a.indptr[i + 1]]
        rows = a[places].toarray().T
        solution = np.linalg.lstsq(rows, columns[i], rcond=None)[0]
        total += float(np.sum((columns[i] - rows @ solution) ** 2))
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """Descend, and compare with the least that is possible."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=8, help="points on a side of the square (default: 8)")
    parser.add_argument("--device", default="cpu", help="device of torch (default: cpu)")
    parser.add_argument("--without-check", action="store_true", help="do not solve the least-squares problems")
    options = parser.parse_args(arguments)

    a = poisson(options.n)
    A = CSR.of(a).to(options.device)
    identity = CSR.of(csr_array(eye_array(a.shape[0]))).to(options.device)
    start = time.perf_counter()
    M, loss, steps = descend(A, identity)
    print(f"A is {a.shape[0]} x {a.shape[0]} with {A.nnz} entries; {steps} steps in {time.perf_counter() - start:.3g} s")
    print(f"||I - M A||_F^2 = {loss:.5f} with {M.nnz} entries in M")
    if not options.without_check:
        print(f"least squares     {least_squares(a):.5f}")


if __name__ == "__main__":
    main()
