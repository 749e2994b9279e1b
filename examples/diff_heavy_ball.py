"""The heavy-ball iteration: step length and momentum are learned through t of its steps.

The iteration x' = x - alpha A x + beta (x - x_before) is run t = 3/4 N times on random errors of Poisson's equation on a line of
N points, and alpha and beta minimize the energy ``sum_j x_j.T A x_j`` of what is left, as in section 4.2 of Nytko et al. (2022),
"Optimized sparse matrix operations for reverse mode automatic differentiation". A grid of 50 x 50 pairs is tried beside.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from scipy.sparse import diags_array

from ooc_chol.diff.torch import CSR

#: Steps of Adam, how far one goes at most, and where they begin.
STEPS, LEARNING_RATE, START = 300, 1e-2, 0.5
#: The grid has so many values of each of both, from 0 to 1.
GRID = 50


def heavy_ball(A: CSR, x: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, steps: int) -> torch.Tensor:
    """The errors after some steps from rest; alpha and beta are two numbers, or one for each column."""
    before = x
    for _ in range(steps):
        x, before = x - alpha * (A @ x) + beta * (x - before), x
    return x


def energies(A: CSR, x: torch.Tensor) -> torch.Tensor:
    """x.T A x of each column."""
    return (x * (A @ x)).sum(0)


def learn(A: CSR, x: torch.Tensor, steps: int) -> tuple[torch.Tensor, float]:
    """Alpha and beta, and the loss with them."""
    both = torch.full((2,), START, dtype=A.dtype, requires_grad=True)
    adam = torch.optim.Adam([both], lr=LEARNING_RATE)
    for _ in range(STEPS):
        adam.zero_grad()
        energies(A, heavy_ball(A, x, *both, steps)).mean().backward()
        adam.step()
    with torch.no_grad():
        return both.detach(), float(energies(A, heavy_ball(A, x, *both, steps)).mean())


def best_of_grid(A: CSR, x: torch.Tensor, steps: int) -> tuple[float, float, float]:
    """The pair of least loss among 50 x 50, and that loss: all pairs at once are columns of one iteration."""
    axis = torch.linspace(0, 1, GRID, dtype=A.dtype)
    pairs, count = torch.cartesian_prod(axis, axis), x.shape[1]
    alpha, beta = pairs.repeat_interleave(count, dim=0).T
    left = energies(A, heavy_ball(A, x.repeat(1, len(pairs)), alpha, beta, steps))
    losses = left.reshape(len(pairs), count).mean(1)
    at = losses.argmin()
    return float(pairs[at, 0]), float(pairs[at, 1]), float(losses[at])


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn both numbers, and compare their loss with the best of the grid."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=16, help="number of unknowns (default: 16)")
    parser.add_argument("--vectors", type=int, default=64, help="number of random errors (default: 64)")
    options = parser.parse_args(arguments)

    n, steps = options.n, 3 * options.n // 4
    A = CSR.of(diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)))
    x = torch.randn(n, options.vectors, dtype=A.dtype, generator=torch.Generator().manual_seed(0))

    (alpha, beta), loss = learn(A, x, steps)
    print(f"energy before {energies(A, x).mean():.4g}; after {steps} steps:")
    print(f"learned  alpha {alpha:.4f}, beta {beta:.4f}: loss {loss:.6g}")
    alpha, beta, least = best_of_grid(A, x, steps)
    print(f"grid     alpha {alpha:.4f}, beta {beta:.4f}: loss {least:.6g}, the least of {GRID} x {GRID}")
    print(f"learned over grid: {loss / least:.4f}")


if __name__ == "__main__":
    main()
