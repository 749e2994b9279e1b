"""What a factor in mixed precision does to a Gaussian likelihood: the paper's measure, the true KL divergence, a log-likelihood.

With ``M = L @ L.T`` in place of A the distribution ``N(0, M)`` stands for ``N(0, A)``. The paper's equation 3 is
``l_0(theta; 0) - l_a(theta; 0) = (logdet M - logdet A) / 2``, which may be negative; the divergence is
``(tr(inv(M) A) - n + logdet M - logdet A) / 2 = (tr E - logdet(I + E)) / 2`` with ``E = inv(L) A inv(L).T - I``. Written with E
nothing large cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, eigh_tridiagonal, lapack

from ooc_chol.dense.factor import CholeskyFactor

#: Largest order at which the divergence is computed exactly, in ``4/3 n**3`` flops and four dense matrices.
EXACT_ORDER = 4096
#: Random vectors, and Lanczos steps for each, above that.
PROBES = 16
LANCZOS_STEPS = 12
#: Seeds of the simulated observations and of the random vectors.
_SEED, _PROBE_SEED = 0, 1

Vectors = NDArray[np.float64]


def paper_kl(logdet: float, approximate_logdet: float) -> float:
    """The paper's equation 3: half the difference of the log-determinants.

    Examples
    --------
    >>> paper_kl(2.0, 3.0)
    0.5
    """
    return (approximate_logdet - logdet) / 2


def log_likelihood(factor: CholeskyFactor, y: Vectors) -> float:
    """The Gaussian log-likelihood of observations y, the paper's equation 1, with the factor of their covariance."""
    half = factor.half_solve(y)
    return -0.5 * (factor.n * math.log(2 * math.pi) + factor.logdet() + float(half @ half))


def exact_kl(a: Vectors, root: Vectors) -> float:
    """KL divergence of ``N(0, L @ L.T)`` from ``N(0, A)``.

    ``4/3 n**3`` flops. Its own rounding errors are of the order of n times those of FP64 in ``inv(L) A inv(L).T``.
    """
    whitened, _ = lapack.dsygst(np.asfortranarray(np.tril(a)), np.asfortranarray(root), itype=1, lower=1, overwrite_a=1)
    trace = math.fsum(whitened.diagonal() - 1.0)
    factored, failed = lapack.dpotrf(whitened, lower=1, clean=0, overwrite_a=1)
    return math.inf if failed else 0.5 * (trace - 2.0 * math.fsum(np.log(factored.diagonal())))


class SampledKl(NamedTuple):
    """An estimate and its standard error."""

    value: float
    standard_error: float


def sampled_kl(
    multiply: Callable[[Vectors], Vectors],
    factor: CholeskyFactor,
    *,
    probes: int = PROBES,
    steps: int = LANCZOS_STEPS,
    seed: int = _PROBE_SEED,
) -> SampledKl:
    """Estimate of the KL divergence of ``N(0, L @ L.T)`` from ``N(0, A)``.

    Hutchinson's estimate of ``tr f(E) / 2`` with ``f(x) = x - log(1 + x)``, each ``z.T f(E) z`` by Lanczos quadrature (Ubaru,
    Chen and Saad, SIAM J. Matrix Anal. 2017). f is not negative, so that nothing cancels: an estimate of ``tr E`` alone would
    err by the order of ``||E||_F``, where the divergence is near ``||E||_F**2 / 4``. ``6 n**2`` flops a vector and step.
    """
    n = factor.n
    start = np.random.default_rng(seed).choice([-1.0, 1.0], (n, probes))

    def apply(v: Vectors) -> Vectors:
        # inv(L) A inv(L).T v - v, with inv(L).T v = inv(L @ L.T) L v
        return factor.half_solve(multiply(factor.solve(factor.matmul(v)))) - v

    diagonals, others = _lanczos(apply, start, min(steps, n))
    values = np.array([_quadrature(d, e) for d, e in zip(diagonals.T, others.T, strict=True)]) * n / 2
    return SampledKl(float(values.mean()), float(values.std(ddof=1) / math.sqrt(probes)))


def _lanczos(apply: Callable[[Vectors], Vectors], start: Vectors, steps: int) -> tuple[Vectors, Vectors]:
    """Diagonals (steps, m) and subdiagonals (steps - 1, m) of the tridiagonal matrices of each column, orthogonalized in full."""
    basis = [start / np.linalg.norm(start, axis=0)]
    diagonals: list[Vectors] = []
    others: list[Vectors] = []
    while True:
        w = apply(basis[-1])
        diagonals.append(np.einsum("ij,ij->j", w, basis[-1]))
        if len(diagonals) == steps:
            return np.array(diagonals), np.array(others).reshape(steps - 1, start.shape[1])
        size = np.linalg.norm(w, axis=0)
        for _ in range(2):
            for q in basis:
                w -= np.einsum("ij,ij->j", w, q) * q
        rest = np.linalg.norm(w, axis=0)
        # What is left of a column whose space is exhausted is rounding: it ends there.
        rest[rest <= 1e-12 * size] = 0.0
        others.append(rest)
        basis.append(np.divide(w, rest, out=np.zeros_like(w), where=rest > 0.0))


def _quadrature(diagonal: Vectors, other: Vectors) -> float:
    """``e_1.T f(T) e_1`` of a tridiagonal matrix with ``f(x) = x - log(1 + x)``."""
    values, vectors = eigh_tridiagonal(diagonal, other) if len(diagonal) > 1 else (diagonal, np.ones((1, 1)))
    if values.min() <= -1.0:
        return math.inf
    return float(np.square(vectors[0]) @ (values - np.log1p(values)))


@dataclass(frozen=True)
class KlReference:
    """What an FP64 factor says, to which others are compared."""

    a: Vectors | None  #: The matrix, its lower triangle; None where it is not held
    logdet: float
    y: Vectors  #: Observations simulated with the FP64 factor
    log_likelihood: float

    @classmethod
    def of(cls, factor: CholeskyFactor, a: Vectors | None) -> KlReference:
        """The reference that an FP64 factor of A gives."""
        y = factor.matmul(np.random.default_rng(_SEED).standard_normal(factor.n))
        return cls(a, factor.logdet(), y, log_likelihood(factor, y))

    def compare(self, factor: CholeskyFactor) -> dict[str, Any]:
        """Figures of another factor beside this one."""
        log_likelihood_error = log_likelihood(factor, self.y) - self.log_likelihood
        found: dict[str, Any] = {
            "kl_paper": paper_kl(self.logdet, factor.logdet()),
            "log_likelihood": self.log_likelihood + log_likelihood_error,
            "log_likelihood_error": log_likelihood_error,
        }
        return found | self._divergence(factor)

    def _divergence(self, factor: CholeskyFactor) -> dict[str, Any]:
        """The true divergence, by the method that the order allows."""
        if self.a is None:
            return {"kl_true": None, "kl_standard_error": None, "kl_method": "left out: A is not held", "measured_error": None}
        if factor.n <= EXACT_ORDER:
            dense = np.asarray(factor)
            value, error, method, measured = exact_kl(self.a, dense), None, "exact", measured_error(self.a, dense)
        else:
            a = self.a
            sample = sampled_kl(lambda v: blas.dsymm(1.0, a.T, np.asfortranarray(v), lower=0), factor)
            value, error, measured = sample.value, sample.standard_error, None
            method = f"Lanczos quadrature, {PROBES} vectors, {LANCZOS_STEPS} steps"
        return {"kl_true": _finite(value), "kl_standard_error": _finite(error), "kl_method": method, "measured_error": measured}


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and math.isfinite(value) else None


def measured_error(a: Vectors, root: Vectors) -> float:
    """``||A - L @ L.T||_F / ||A||_F``; only the lower triangle of A is read."""
    product = blas.dsyrk(1.0, np.asfortranarray(root), lower=1)
    both, count_twice = np.tril(a), np.tril(np.full(a.shape, math.sqrt(2.0)), -1)
    np.fill_diagonal(count_twice, 1.0)
    return float(np.linalg.norm(count_twice * (both - np.tril(product))) / np.linalg.norm(count_twice * both))
