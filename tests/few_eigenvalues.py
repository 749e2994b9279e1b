"""Symmetric matrices with few distinct eigenvalues, in which Krylov spaces end early, and all their eigenvalues by theory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import ooc_chol as oc
from tests.inside.eigen import DEFAULT_TOL
from tests.tolerances import eigenvector_deviation, gamma


class Spectral(NamedTuple):
    """A matrix, and all its eigenvalues."""

    a: scipy.sparse.csr_array
    values: NDArray[np.float64]


class Case(NamedTuple):
    """What is looked for, of which matrix."""

    name: str
    made: Spectral
    k: int
    options: dict[str, object]

    def __repr__(self) -> str:
        told = "-".join(str(each) for each in self.options.values())
        return f"{self.name}-{self.k}-{told}"


# families


def scaled_identity(n: int, c: float = 1.0) -> Spectral:
    return Spectral(scipy.sparse.diags_array(np.full(n, c)).tocsr(), np.full(n, c))


def complete(m: int) -> Spectral:
    return Spectral(_csr(np.ones((m, m)) - np.eye(m)), np.r_[m - 1.0, np.full(m - 1, -1.0)])


def ones(m: int) -> Spectral:
    return Spectral(_csr(np.ones((m, m))), np.r_[float(m), np.zeros(m - 1)])


def cycle(m: int) -> Spectral:
    """A permutation of one cycle, made symmetric."""
    shift = np.roll(np.eye(m), 1, axis=1)
    return Spectral(_csr(shift + shift.T), 2 * np.cos(2 * np.pi * np.arange(m) / m))


def triangular(m: int) -> Spectral:
    """The line graph of a complete graph."""
    one, other = np.triu_indices(m, 1)
    ends = np.zeros((len(one), m))
    ends[np.arange(len(one)), one] = ends[np.arange(len(one)), other] = 1
    counts = [1, m - 1, m * (m - 3) // 2]
    return Spectral(_csr(ends @ ends.T - 2 * np.eye(len(one))), np.repeat([2.0 * m - 4, m - 4.0, -2.0], counts))


def paley(q: int) -> Spectral:
    """Of a prime that is 1 modulo 4: differences that are squares."""
    squares = np.unique(np.arange(1, q) ** 2 % q)
    at = np.arange(q)
    a = np.isin((at[:, None] - at) % q, squares).astype(float)
    half = (q - 1) // 2
    return Spectral(_csr(a), np.r_[float(half), np.repeat([(np.sqrt(q) - 1) / 2, (-np.sqrt(q) - 1) / 2], half)])


def hadamard(d: int) -> Spectral:
    """Sylvester's matrix of signs, of order 2**d."""
    h = reduce(np.kron, [np.array([[1.0, 1.0], [1.0, -1.0]])] * d)
    return Spectral(_csr(h), np.repeat([1.0, -1.0], len(h) // 2) * np.sqrt(len(h)))


def swaps(n: int, pairs: int, rng: np.random.Generator) -> Spectral:
    """A symmetric permutation: some pairs change places."""
    place, chosen = np.arange(n), rng.permutation(n)[: 2 * pairs]
    place[chosen[:pairs]], place[chosen[pairs:]] = chosen[pairs:], chosen[:pairs]
    return Spectral(scipy.sparse.eye_array(n).tocsr()[place], np.r_[np.ones(n - pairs), np.full(pairs, -1.0)])


def projection(m: int, rank: int, rng: np.random.Generator) -> Spectral:
    q = np.linalg.qr(rng.standard_normal((m, rank)))[0]
    p = q @ q.T
    return Spectral(_csr((p + p.T) / 2), np.r_[np.ones(rank), np.zeros(m - rank)])


def random_small(m: int, rng: np.random.Generator) -> Spectral:
    """The only one whose eigenvalues LAPACK tells."""
    x = rng.standard_normal((m, m))
    return Spectral(_csr(x + x.T), np.linalg.eigvalsh(x + x.T))


# what makes others of them


def affine(one: Spectral, factor: float, shift: float = 0.0) -> Spectral:
    n = one.a.shape[0]
    a = factor * one.a + shift * scipy.sparse.eye_array(n)
    return Spectral(a.tocsr(), factor * one.values + shift)


def copies(one: Spectral, count: int) -> Spectral:
    return Spectral(scipy.sparse.block_diag([one.a] * count).tocsr(), np.tile(one.values, count))


def union(*parts: Spectral) -> Spectral:
    return Spectral(scipy.sparse.block_diag([each.a for each in parts]).tocsr(), np.concatenate([each.values for each in parts]))


def cartesian(one: Spectral, other: Spectral) -> Spectral:
    """Of complete graphs a rook's graph, of pairs of vertices a hypercube."""
    return Spectral(scipy.sparse.kronsum(other.a, one.a).tocsr(), np.add.outer(one.values, other.values).reshape(-1))


def tensor(one: Spectral, other: Spectral) -> Spectral:
    return Spectral(scipy.sparse.kron(one.a, other.a).tocsr(), np.multiply.outer(one.values, other.values).reshape(-1))


def hypercube(d: int) -> Spectral:
    return reduce(cartesian, [complete(2)] * d)


def mixed(one: Spectral, rng: np.random.Generator) -> Spectral:
    """Rows and columns in another order, and with other signs."""
    n = one.a.shape[0]
    order, signs = rng.permutation(n), scipy.sparse.diags_array(rng.choice([-1.0, 1.0], n))
    return Spectral((signs @ one.a[order][:, order] @ signs).tocsr(), one.values)


def matrices() -> Iterator[tuple[str, Spectral]]:
    """About 100 of them, of 20 to 3,000 rows, each with 1 to 12 distinct eigenvalues."""
    rng = np.random.default_rng(5)
    for c in (1.0, -3.0, 0.0, 1e-6, 7e5):
        yield f"{c:g}I", scaled_identity(150, c)
    for m, count in ((30, 20), (5, 40), (2, 300), (3, 100), (25, 1), (60, 5), (150, 20)):
        yield f"{count}K{m}", copies(complete(m), count)
    for parts in ((30, 20, 10), (3, 4, 5, 6, 7, 8, 9, 10), (50, 50, 49, 2, 2, 2), (100, 1, 1, 1, 1)):
        yield "K" + "+K".join(map(str, parts)), union(*map(complete, parts))
    for m, q in ((20, 20), (5, 9), (2, 60), (3, 50), (12, 25), (40, 40)):
        yield f"K{m}xK{q}", cartesian(complete(m), complete(q))
        yield f"K{m}*K{q}", tensor(complete(m), complete(q))
    for m, s in ((60, 2), (10, 10), (3, 40), (2, 75)):
        yield f"K{m}x{s}", tensor(complete(m), ones(s))
    for m in (7, 10, 16, 25, 40):
        yield f"T{m}", triangular(m)
        yield f"2T{m}*K2", tensor(triangular(m), complete(2))
    for q in (29, 61, 101, 197, 401):
        yield f"P{q}", paley(q)
        yield f"P{q}-I/2", affine(paley(q), -2.0, 1.0)
    for d in (5, 7, 8, 9, 10, 11):
        yield f"Q{d}", hypercube(d)
        yield f"L(Q{d})", affine(hypercube(d), -1.0, d)
    for d, q in ((3, 4), (3, 7), (4, 4), (5, 3)):
        yield f"H{d},{q}", reduce(cartesian, [complete(q)] * d)
    for d in (5, 7, 9):
        yield f"S{d}", hadamard(d)
    for length, count in ((3, 60), (4, 40), (5, 40), (8, 100), (12, 25), (20, 9)):
        yield f"{count}C{length}", copies(cycle(length), count)
    for n, pairs in ((120, 60), (500, 10), (1000, 400)):
        yield f"swaps{n},{pairs}", swaps(n, pairs, rng)
    for m, rank, count in ((30, 1, 10), (24, 12, 7), (200, 3, 1), (10, 9, 100)):
        one = projection(m, rank, rng)
        yield f"{count}proj{m},{rank}", copies(one, count)
        yield f"{count}refl{m},{rank}", affine(copies(one, count), -2.0, 1.0)
    for m, count in ((3, 200), (7, 40), (12, 30)):
        yield f"{count}R{m}", copies(random_small(m, rng), count)
    yield "K20xK5*K3", tensor(cartesian(complete(20), complete(5)), complete(3))
    yield "P29xK4", cartesian(paley(29), complete(4))
    yield "T9*P13", tensor(triangular(9), paley(13))
    yield "T8xT7", cartesian(triangular(8), triangular(7))
    yield "C4xC4xK6", cartesian(cartesian(cycle(4), cycle(4)), complete(6))
    yield "K30+Q6+P61", union(complete(30), hypercube(6), paley(61))
    yield "P101+c", union(paley(101), scaled_identity(60, 50.0))
    for name, one in (("20K30", copies(complete(30), 20)), ("T25", triangular(25)), ("Q9", hypercube(9)), ("P197", paley(197))):
        yield f"mixed {name}", mixed(one, rng)


METHODS, ENDS, BLOCKS, PRECISIONS = ("lanczos", "lobpcg"), ("LA", "SA", "LM"), (None, 1, 2, 4, 8), ("DDD", "FDF", "FFF")


def cases(per_matrix: int = 2, seed: int = 0) -> list[Case]:
    """Of each matrix some things to look for, drawn by a seed."""
    rng, found = np.random.default_rng(seed), []
    for name, made in matrices():
        for _ in range(per_matrix):
            found.append(_drawn(name, made, rng))
    return found


def _drawn(name: str, made: Spectral, rng: np.random.Generator) -> Case:
    n = made.a.shape[0]
    method = str(rng.choice(METHODS, p=(0.8, 0.2)))
    which = str(rng.choice(ENDS[: 2 if method == "lobpcg" else 3]))
    drawn = rng.choice([0, 1, 2, 4, 8])
    block = None if drawn == 0 else int(drawn)
    precision = str(rng.choice(PRECISIONS, p=(0.6, 0.2, 0.2)))
    most = min(n // 3, 20 if method == "lobpcg" else 100)
    k = int(rng.choice([1, 2, rng.integers(1, most + 1), rng.integers(1, max(2, most // 3) + 1)]))
    options: dict[str, object] = {"which": which, "method": method, "block": block, "precision": precision}
    if method == "lanczos" and rng.random() < 0.5:
        width = block or 8
        least = (-(-k // width) + 12) * width  # as the message about ncv advises: the check has room then
        options["ncv"] = int(rng.integers(least, least + 6 * width))
    return Case(name, made, k, options)


# what an answer must be


def check_cases(chosen: list[Case], devices: object) -> None:
    """All of them; those that fail are told together."""
    failed = []
    for case in chosen:
        try:
            check_case(case, oc.eigsh(case.made.a, case.k, devices=devices, max_passes=2000, **case.options))
        except (AssertionError, oc.OocCholError, ValueError) as error:
            failed.append(f"{case!r}: {type(error).__name__} {error}")
    assert not failed, "\n".join(failed)


def check_case(case: Case, pairs: oc.Eigenpairs) -> None:
    """Values of theory with their multiplicities, and orthonormal vectors with small residuals."""
    (w, v), tol = pairs, DEFAULT_TOL[oc.Precision(case.options.get("precision", "DDD"))]
    exact, scale = v.astype(np.float64), max(np.abs(case.made.values).max(), np.finfo(float).tiny)
    which, values = case.options["which"], case.made.values
    sizes = np.abs if which == "LM" else np.asarray
    keys = {"LM": np.abs(values), "LA": values, "SA": -values}[which]
    wanted = np.sort(sizes(values[np.argsort(-keys, kind="stable")[: case.k]]))
    assert np.abs(np.sort(sizes(w)) - wanted).max() <= tol * scale
    # Of two with the same magnitude either may be there, but neither more often than theory has it.
    for each in np.unique((w / scale).round(3)) * scale:
        assert (np.abs(w - each) <= 1e-3 * scale).sum() <= (np.abs(values - each) <= 2e-3 * scale).sum()
    assert np.linalg.norm(case.made.a @ exact - exact * w, axis=0).max() <= 2 * tol * scale
    # Vectors of symmetric graphs consist of equal numbers, whose roundings in sums of n squares add up.
    gram = exact.T @ exact
    norms = np.sqrt(np.diag(gram))
    assert np.abs(norms - 1).max() <= gamma(len(exact), v.dtype)
    cosines = gram / np.outer(norms, norms) - np.eye(case.k)
    assert np.abs(cosines).max() <= eigenvector_deviation(v.dtype, pairs.report.restarts)


def _csr(a: NDArray[np.float64]) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(a)
