"""A preconditioner for conjugate gradients: M = L L.T of a bidiagonal L is learned through four iterations.

Poisson's equation on a square of n x n points. The loss is the weighted sum of relative residuals of the first four iterations,
the last one counting most, as in section 4.3 of Nytko et al. (2022), "Optimized sparse matrix operations for reverse mode
automatic differentiation". Each step of the training meets new random right-hand sides; the test's is none of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, eye_array, kron

from ooc_chol.diff import Pattern
from ooc_chol.diff.torch import CSR

#: Steps of Adam, how far one goes at most, and right-hand sides of each.
STEPS, LEARNING_RATE, COLUMNS = 300, 1e-2, 8
#: Iterations that are trained through, and the weight of each beside the next one's.
ITERATIONS, GAMMA = 4, 0.6
TOLERANCE = 1e-6


def poisson(n: int) -> csr_array:
    """Poisson's matrix on a square of n x n points."""
    line = diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    return csr_array(kron(line, eye_array(n)) + kron(eye_array(n), line))


def relative_residuals(A: CSR, M: CSR | None, b: torch.Tensor) -> Iterator[torch.Tensor]:
    """||r|| / ||b|| of each column after each iteration of preconditioned conjugate gradients from zero."""
    r, size = b, b.norm(dim=0)
    z = r if M is None else M @ r
    p, rz = z, (r * z).sum(0)
    while True:
        q = A @ p
        r = r - rz / (p * q).sum(0) * q
        yield r.norm(dim=0) / size
        z = r if M is None else M @ r
        before, rz = rz, (r * z).sum(0)
        p = z + rz / before * p


def learn(A: CSR) -> CSR:
    """The factor L, from the identity."""
    n = A.shape[0]
    pattern, _ = Pattern.of(diags_array([1.0, 1.0], offsets=[-1, 0], shape=(n, n)))
    L = CSR(torch.from_numpy((pattern.rows == pattern.indices).astype(float)).to(A.device), pattern).requires_grad_()
    weights = torch.tensor([GAMMA ** (ITERATIONS - i) for i in range(1, ITERATIONS + 1)], dtype=A.dtype, device=A.device)
    adam = torch.optim.Adam([L.values], lr=LEARNING_RATE)
    random = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        b = torch.randn(n, COLUMNS, dtype=A.dtype, generator=random).to(A.device)
        adam.zero_grad()
        residuals = torch.stack(list(islice(relative_residuals(A, L @ L.T, b), ITERATIONS)))
        (weights @ residuals.mean(1) / weights.sum()).backward()
        adam.step()
    return L.detach()


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn M, and run conjugate gradients without and with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=8, help="points on a side of the square (default: 8)")
    parser.add_argument("--device", default="cpu", help="device of torch (default: cpu)")
    options = parser.parse_args(arguments)

    A = CSR.of(poisson(options.n)).to(options.device)
    L = learn(A)
    M = L @ L.T
    print(f"A has {A.nnz} entries, M has {M.nnz}")
    b = torch.from_numpy(np.random.default_rng(0).normal(size=(A.shape[0], 1))).to(options.device)
    for name, each in (("without M", None), ("with M", M)):
        history = [1.0]
        residuals = relative_residuals(A, each, b)
        while history[-1] > TOLERANCE:
            history.append(float(next(residuals)))
        print(f"{name:9s} {len(history) - 1} iterations to {TOLERANCE:g}; residual after {ITERATIONS}: {history[ITERATIONS]:.4f}")


if __name__ == "__main__":
    main()
