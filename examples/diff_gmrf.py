"""A Gaussian Markov random field on a grid: its parameters by maximum likelihood, with standard errors, of noisy observations.

The field has the sparse precision ``Q = tau (kappa^2 I + G)``, G being the five-point Laplacian of an n x n grid (Lindgren, Rue
and Lindstrom 2011), and is seen with noise of variance s^2 at every point. The log-likelihood takes ``log det Q`` and
``log det (Q + I / s^2)``, whose gradients are inverses on the pattern of Q; its second derivatives give the standard errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from time import perf_counter

import numpy as np
import torch
from scipy.sparse import diags_array, eye_array, kronsum

import ooc_chol.diff.torch as sparse

#: What the data are made with: log kappa, log tau, and log s.
TRUTH = (-1.0, 0.5, -1.0)
NAMES = ("log kappa", "log tau", "log s")


def precision(theta: torch.Tensor, n: int) -> sparse.CSR:
    """Q of the parameters."""
    line = diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    grid, eye = sparse.CSR.of(kronsum(line, line)), sparse.CSR.of(eye_array(n * n))
    return sparse.add(grid, eye, alpha=torch.exp(theta[1]), beta=torch.exp(theta[1] + 2 * theta[0]))


def loss(theta: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
    """Minus the log-likelihood of observations y, up to a constant."""
    Q, weight = precision(theta, n), torch.exp(-2 * theta[2])
    posterior = sparse.add(Q, sparse.CSR.of(eye_array(n * n)), beta=weight)
    mean = sparse.solve(posterior, weight * y, assume="spd")
    logdets = sparse.logdet(posterior) - sparse.logdet(Q) + 2 * len(y) * theta[2]
    return (logdets + weight * (y @ (y - mean))) / 2


def fit(y: torch.Tensor, n: int) -> torch.Tensor:
    """The parameters of largest likelihood."""
    theta = torch.zeros(3, dtype=y.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([theta], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(theta, y, n)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return theta.detach()


def main(arguments: Sequence[str] | None = None) -> None:
    """Make a field, see it with noise, and estimate what it was made with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=40, help="points along a side of the grid (default: 40)")
    options = parser.parse_args(arguments)

    n, truth = options.n, torch.tensor(TRUTH, dtype=torch.float64)
    z, noise = torch.from_numpy(np.random.default_rng(0).standard_normal((2, n * n)))
    y = sparse.sample(precision(truth, n), z) + torch.exp(truth[2]) * noise

    begin = perf_counter()
    theta = fit(y, n)
    print(f"{n} x {n} points, fitted in {perf_counter() - begin:.1f} s")
    information = torch.autograd.functional.hessian(lambda theta: loss(theta, y, n), theta)  # type: ignore[no-untyped-call]
    errors = torch.linalg.inv(information).diagonal().sqrt()
    for name, value, error, right in zip(NAMES, theta, errors, truth, strict=True):
        print(f"{name:9}  {value:7.3f}, standard error {error:.3f}; made with {right:.1f}")

    Q = precision(theta, n).detach()
    begin = perf_counter()
    Q.requires_grad_()
    sparse.logdet(Q * 1.01).backward()  # type: ignore[no-untyped-call]
    print(f"log det Q of new values and its gradient, {Q.nnz} numbers: {perf_counter() - begin:.3f} s")


if __name__ == "__main__":
    main()
