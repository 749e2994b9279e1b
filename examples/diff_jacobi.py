"""Jacobi's method with a weight of its own for each unknown: the weights are learned through sparse products.

The matrix is Poisson's on a line of N points. One step turns an error x into (I - W D^-1 A) x, and the weights W minimize its
energy ``sum_j x_j.T A x_j`` over test errors x_j, as in section 4.1 of Nytko et al. (2022), "Optimized sparse matrix operations
for reverse mode automatic differentiation". Errors of covariance A^-1, which are white in the norm that the loss is measured in,
give the weights of its figure 7: 2/3 inside, more at both ends. With white errors (``--errors white``) the same loss is least at
0.6 inside, which is the diagonal times tr(A^2) / tr(A^3). Test errors are orthogonal, so that N + 1 of them are an exact mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch
from scipy.sparse import diags_array

from ooc_chol.diff.torch import CSR, solve

#: How far a step of Adam goes at most.
LEARNING_RATE = 1e-2


def differences(n: int) -> CSR:
    """The (n + 1) x n matrix G of differences between neighbours, with zeros beyond both ends: G.T G is Poisson's matrix."""
    return CSR.of(diags_array([1.0, -1.0], offsets=[0, -1], shape=(n + 1, n)))


def random_errors(A: CSR, G: CSR, kind: str, count: int, random: torch.Generator) -> torch.Tensor:
    """Orthonormal random vectors w, one a column, times sqrt(N): white errors, or A^-1 G.T w, whose covariance is A^-1."""
    n = A.shape[0] if kind == "white" else G.shape[0]
    w = torch.linalg.qr(torch.randn(n, min(count, n), dtype=A.dtype, generator=random)).Q * n**0.5
    return w if kind == "white" else solve(A, G.T @ w, assume="spd")


def jacobi(A: CSR, weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The errors after one step: x - W D^-1 A x."""
    return x - A.scale(rows=weights / A.diagonal()) @ x


def energy(A: CSR, x: torch.Tensor) -> torch.Tensor:
    """The mean of x.T A x over the columns."""
    return (x * (A @ x)).sum() / x.shape[1]


def learn(A: CSR, errors: Callable[[], torch.Tensor], steps: int) -> torch.Tensor:
    """The weights after some steps of Adam from 1, each with errors of its own."""
    weights = torch.ones(A.shape[0], dtype=A.dtype, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=LEARNING_RATE)
    for _ in range(steps):
        adam.zero_grad()
        energy(A, jacobi(A, weights, errors())).backward()
        adam.step()
    return weights.detach()


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn the weights, and say what they are and what a step with them leaves of an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=16, help="number of unknowns (default: 16)")
    parser.add_argument("--errors", choices=("energy", "white"), default="energy", help="covariance of test errors: A^-1, or I")
    parser.add_argument("--vectors", type=int, default=64, help="number of test errors, at most N + 1 (default: 64)")
    parser.add_argument("--steps", type=int, default=100, help="steps of Adam (default: 100)")
    options = parser.parse_args(arguments)

    G = differences(options.n)
    A = G.T @ G  # a product of sparse matrices
    random = torch.Generator().manual_seed(0)
    weights = learn(A, lambda: random_errors(A, G, options.errors, options.vectors, random), options.steps)

    x = random_errors(A, G, options.errors, options.vectors, random)
    before = energy(A, x)
    ones = torch.ones_like(weights)
    for name, each in (("weights 1", ones), ("weights 2/3", 2 / 3 * ones), ("learned", weights)):
        print(f"energy that a step leaves, {name:11s} {energy(A, jacobi(A, each, x)) / before:.4f}")
    inside = weights[1:-1]
    print(f"learned weights: ends {weights[0]:.3f} and {weights[-1]:.3f}, inside {inside.min():.3f} to {inside.max():.3f}")
    print(f"mean inside {inside.mean():.3f}; all of them: " + " ".join(f"{w:.3f}" for w in weights[:32].tolist()))


if __name__ == "__main__":
    main()
