"""What kernels on panels promise, on whatever machine: each function checks one promise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tests.inside.tasks import CHUNK_ROWS
from tests.panel_arrays import (
    added,
    as_matrix,
    clamped,
    combined,
    entries_multiplied,
    factored,
    fallen,
    fell_within,
    filled,
    flag,
    multiplied,
    multiplied_twice,
    partials,
    recurred,
    subtracted,
    vectors,
    widened,
)
from tests.tolerances import gamma, sparse_product_bound

#: Rows: one, fewer than a strip's run, the last chunk short, two whole chunks.
ROWS = (1, 37, 300, CHUNK_ROWS + 8193, 2 * CHUNK_ROWS)
#: Entries in [-1, 1) of seed 1, rows 0 and 3,000,000,000, all columns: in units of 2**-23.
GOLDEN_ROWS = {
    0: [-2211413, 7441772, -7629322, 4654619, -4712467, 4603654, 2118402, -4245220],
    3_000_000_000: [2761893, 5872843, 6114119, -7702741, -6815377, 590053, 7844831, 4033809],
}


def inner_products(machine, precision, block, p, rows):
    """Of each chunk and of all, within the bound of sums whose roundings are independent."""
    basis, w = vectors((p, rows, block), precision), vectors((rows, block), precision, 1)
    of_chunks = partials(machine, precision, basis, w)
    v, x = as_matrix(basis), w.astype(np.longdouble)
    for chunk, found in enumerate(of_chunks):
        own = slice(chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS)
        bound = sparse_product_bound(len(x[own]), np.abs(v[own]).T @ np.abs(x[own]), precision.compute)
        assert np.all(np.abs(found - v[own].T @ x[own]) <= bound)
    bound = sparse_product_bound(rows, np.abs(v).T @ np.abs(x), precision.compute)
    total = added(machine, precision, of_chunks)
    assert np.all(np.abs(total - v.T @ x) <= bound)
    twice = added(machine, precision, of_chunks, before=total)
    assert np.array_equal(twice, total + total)


def inner_products_of_ranges(machine, precision, block, p, rows, devices):
    """Rows shared by several devices in whole chunks have the sums of one device, to the bit."""
    basis, w = vectors((p, rows, block), precision), vectors((rows, block), precision, 1)
    chunks = -(-rows // CHUNK_ROWS)
    bounds = pairwise(min(rows, chunks * number // devices * CHUNK_ROWS) for number in range(devices + 1))
    ranges = [slice(first, stop) for first, stop in bounds if stop > first]
    parts = [partials(machine, precision, np.ascontiguousarray(basis[:, own]), w[own]) for own in ranges]
    whole = partials(machine, precision, basis, w)
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    coefficients = vectors((p * block, block), precision, 2).astype(precision.compute)
    updated = [subtracted(machine, precision, np.ascontiguousarray(basis[:, own]), coefficients, w[own]) for own in ranges]
    assert np.concatenate(updated).tobytes() == subtracted(machine, precision, basis, coefficients, w).tobytes()


def updates(machine, precision, block, p, rows):
    """``W - V C`` in the arithmetic of the precision, rounded to the type of storage once."""
    basis, w = vectors((p, rows, block), precision), vectors((rows, block), precision, 1)
    coefficients = vectors((p * block, block), precision, 2).astype(precision.compute)
    found = subtracted(machine, precision, basis, coefficients, w)
    v, c = as_matrix(basis), coefficients.astype(np.longdouble)
    exact, size = w - v @ c, np.abs(w) + np.abs(v) @ np.abs(c)
    bound = sparse_product_bound(p * block + 1, size, precision.compute, exact, precision.storage)
    assert found.dtype == precision.storage
    assert np.all(np.abs(found - exact) <= bound)


def rotations(machine, precision, block, p, q, rows):
    """``V S`` beside V and over its first panels, with the same bits; the other panels stay."""
    basis = vectors((p, rows, block), precision)
    coefficients = vectors((p * block, q * block), precision, 2).astype(precision.compute)
    beside = combined(machine, precision, basis, coefficients, in_place=False)
    v, s = as_matrix(basis), coefficients.astype(np.longdouble)
    exact = v @ s
    bound = sparse_product_bound(p * block, np.abs(v) @ np.abs(s), precision.compute, exact, precision.storage)
    assert np.all(np.abs(as_matrix(beside) - exact) <= bound)
    if q <= p:
        over = combined(machine, precision, basis, coefficients, in_place=True)
        assert over[:q].tobytes() == beside.tobytes()
        assert over[q:].tobytes() == basis[q:].tobytes()


def nothing_unless(machine, precision, block):
    """Kernels that are told 0 leave everything untouched; told 1 they do what they do without being told."""
    basis, w = vectors((3, 300, block), precision), vectors((300, block), precision, 1)
    coefficients = vectors((3 * block, block), precision, 2).astype(precision.compute)
    idle, busy = flag(machine, 0), flag(machine, 1)
    assert np.isnan(partials(machine, precision, basis, w, unless=idle)).all()
    of_chunks = partials(machine, precision, basis, w, unless=busy)
    assert of_chunks.tobytes() == partials(machine, precision, basis, w).tobytes()
    before = coefficients.copy()
    assert added(machine, precision, of_chunks, before, unless=idle).tobytes() == before.tobytes()
    assert added(machine, precision, of_chunks, before, unless=busy).tobytes() == (before + of_chunks[0]).tobytes()
    assert subtracted(machine, precision, basis, coefficients, w, unless=idle).tobytes() == w.tobytes()
    once = subtracted(machine, precision, basis, coefficients, w)
    assert subtracted(machine, precision, basis, coefficients, w, unless=busy).tobytes() == once.tobytes()


def triangular_factors(machine, precision, block):
    """R and its inverse within the bounds of substitution, for columns whose norms are far apart too."""
    w = vectors((400, block), precision).astype(float) * 10.0 ** (-2 * np.arange(block))
    g = (w.T @ w).astype(precision.compute)
    r, inverse, dependent = factored(machine, precision, g, 1e-12)
    assert not dependent.any()
    assert np.array_equal(r, np.triu(r)) and np.array_equal(inverse, np.triu(inverse))
    magnitudes = np.abs(r).astype(np.longdouble)
    bound = 2 * gamma(block + 3, precision.compute) * (magnitudes.T @ magnitudes)
    assert np.all(np.abs(r.T.astype(np.longdouble) @ r - g) <= np.maximum(bound, bound.T))
    bound = 2 * gamma(block + 3, precision.compute) * (magnitudes @ np.abs(inverse))
    assert np.all(np.abs(r.astype(np.longdouble) @ inverse - np.eye(block)) <= bound)


def dependent_columns(machine, precision, block):
    """Equal, zero and NaN columns are told, the others are orthonormalized; a column that is only small is kept."""
    w = vectors((400, block), precision).astype(float)
    kept = np.ones(block, bool)
    w[:, 0] *= 1e-20 if precision.compute.itemsize == 8 else 1e-12
    spoiled = {1: lambda: w[:, 0], 3: lambda: 0.0, 4: lambda: np.nan, 6: lambda: -2 * w[:, 5]}
    for column in range(block):
        if column in spoiled:
            w[:, column], kept[column] = spoiled[column](), False
    stored = w.astype(precision.storage)
    with np.errstate(invalid="ignore"):
        g = stored.astype(precision.compute).T @ stored.astype(precision.compute)
    tolerance = 100 * float(np.finfo(precision.compute).eps)
    r, inverse, dependent = factored(machine, precision, g, tolerance)
    assert np.array_equal(dependent, ~kept)
    assert not r[~kept].any()
    assert not inverse[~kept].any() and not inverse[:, ~kept].any()
    for in_place in (True, False):
        q = multiplied(machine, precision, stored, inverse, in_place=in_place).astype(float)
        assert not q[:, ~kept].any()
        largest = np.abs(q[:, kept].T @ q[:, kept] - np.eye(kept.sum())).max()
        assert largest <= 1000 * float(np.finfo(precision.storage).eps)


def two_factors(machine, precision, block):
    """The bits of one factor after the other, also where a column is not taken; with a flag, those that are there already."""
    w, made = vectors((20_000, block), precision), vectors((20_000, block), precision, 1)
    first, second = np.triu(vectors((2, block, block), precision, 2).astype(float))
    first[-1] = 0
    wanted = multiplied(machine, precision, multiplied(machine, precision, w, first), second)
    for flags in ((0, 0), (0, 1), (1, 0), (1, 1)):
        found = multiplied_twice(machine, precision, w, (first, second), made, flags)
        assert found.tobytes() == (made if any(flags) else wanted).tobytes()


def no_column_at_all(machine, precision, block):
    """Gram matrices of nothing but zeros, NaN or infinities."""
    for number in (0.0, np.nan, np.inf):
        r, inverse, dependent = factored(machine, precision, np.full((block, block), number), 1e-12)
        assert dependent.tolist() == [1] * block
        assert not inverse.any()
        assert not r.any()


def random_panels(machine, precision, block):
    """Numbers of seed, row and column alone, the same in every precision, block and device."""
    for first, units in GOLDEN_ROWS.items():
        found = filled(machine, precision, np.full((5, block), np.nan, precision.storage), first, 1)
        assert (found[0] * 2.0**23).tolist() == units[:block]
    w = np.full((70_000, block), np.nan, precision.storage)
    whole = filled(machine, precision, w, 10, 5)
    assert whole[60_001:].tobytes() == filled(machine, precision, w[60_001:], 60_011, 5).tobytes()
    assert whole.min() >= -1 and whole.max() < 1
    assert abs(float(whole.mean(dtype=float))) < 0.02 and abs(float(whole.var(dtype=float)) - 1 / 3) < 0.01
    assert not np.array_equal(whole, filled(machine, precision, w, 10, 6))
    chosen = np.arange(block) % 2 == 1
    some = filled(machine, precision, np.full_like(w, 3), 10, 5, columns=chosen)
    assert np.array_equal(some[:, chosen], whole[:, chosen]) and (some[:, ~chosen] == 3).all()


def norms_that_fell(machine, precision, block):
    before, after = np.eye(block) * 4.0, np.full((block, block), 0.0)
    np.fill_diagonal(after, 1.0)  # a half of the norm
    assert fallen(machine, precision, before, after, 0.5) == 0
    assert fallen(machine, precision, before, after, 0.51) == 1
    after[-1, -1] = 0.9
    assert fallen(machine, precision, before, after, 0.5) == 1
    assert fallen(machine, precision, 0 * before, 0 * after, 0.5) == 0


def clamped_factors(machine, precision, block):
    """Without small pivots the factor is Cholesky's; with them the product is still W, and no column is given up."""
    w = vectors((400, block), precision).astype(float)
    tolerance = 100 * float(np.finfo(precision.compute).eps)
    gram = (w.T @ w).astype(precision.compute)
    r, inverse, weak = clamped(machine, precision, gram, tolerance)
    plain = factored(machine, precision, gram, tolerance)
    assert weak == 0
    assert np.allclose(r, plain[0], rtol=tolerance) and np.allclose(inverse, plain[1], rtol=tolerance, atol=tolerance)
    if block == 1:
        return
    w[:, 1] = w[:, 0] * (1 + 1e-3 * tolerance)
    gram = (w.T @ w).astype(precision.compute)
    for last in (None, np.arange(block) == 0):
        r, inverse, weak = clamped(machine, precision, gram, tolerance, last)
        assert weak == 1
        assert np.allclose(r.astype(float) @ inverse, np.eye(block), atol=1e-2)
        assert (np.diag(r) > 0).all()
        q = w @ inverse.astype(float)
        assert np.abs(q @ r - w).max() <= 100 * tolerance * np.abs(w).max()
        short = np.linalg.norm(q, axis=0) < 0.5
        assert short.tolist() == [number == (0 if last is not None else 1) for number in range(block)]
    order = [*range(1, block), 0]
    assert np.array_equal(r[np.ix_(order, order)], np.triu(r[np.ix_(order, order)]))
    idle = clamped(machine, precision, gram, tolerance, unless=flag(machine, 0))
    assert np.isnan(idle[0]).all() and np.isnan(idle[1]).all() and idle[2] == 7


def clamped_factors_of_nothing(machine, precision, block):
    """Zero columns, and those that are not finite, have zero rows and columns."""
    w = vectors((400, block), precision).astype(float)
    w[:, 0] = 0.0
    gram = w.T @ w
    if block > 2:
        gram[2, :] = gram[:, 2] = np.nan
    r, inverse, weak = clamped(machine, precision, gram, 1e-5)
    gone = [0, 2] if block > 2 else [0]
    assert weak == 0
    assert not r[gone].any() and not inverse[gone].any() and not inverse[:, gone].any()
    kept = [number for number in range(block) if number not in gone]
    assert np.allclose((inverse @ r)[np.ix_(kept, kept)], np.eye(len(kept)), atol=1e-4)


def clamped_factors_of_hardly_anything(machine, precision, block):
    """Squares that are no normal numbers have no bits to be exact in: nothing of them becomes infinite, and nothing above is.

    A GPU has none of them in FP32, as CuPy compiles: they are zero there.
    """
    least = np.finfo(precision.compute).smallest_subnormal
    for factor in (1, 3, 1000):
        gram = np.full((block, block), factor * least)
        r, inverse, weak = clamped(machine, precision, gram, 1e-5)
        if machine.name.startswith("cuda") and precision.compute == np.float32:
            assert weak == 0 and not r.any() and not inverse.any()
            continue
        assert weak == 1 and np.isfinite(r).all() and np.isfinite(inverse).all() and (inverse.diagonal() > 0).all()
        assert np.abs(inverse).max() <= 2 * float(np.finfo(precision.compute).tiny) ** -0.5


def columns_by_what_they_were(machine, precision, block):
    """A short column depends whose pivot, times the square of what it was divided by, is below the roundoff of what it was."""
    scale, before = np.diag(10.0 ** -np.arange(block)), np.eye(block)
    for pivot, share in ((1.0, 0.0), (1.0, 0.9), (1e-4, 0.9), (1e-6, 0.0)):
        for roundoff, count in ((0.05, min(2, block)), (1e-20, block), (2.0, 0)):
            found = factored(machine, precision, pivot * np.eye(block), 1e-5, scale, before, roundoff * pivot**0.5, share)
            r, inverse, dependent, weak = found
            wanted = np.arange(block) >= (count if pivot < 1e-5 else block)
            assert dependent.tolist() == wanted.tolist()
            assert weak == (wanted.any() or pivot < share**2)
            assert not r[wanted].any() and not inverse[wanted].any() and not inverse[:, wanted].any()


def columns_that_fell(machine, precision, block):
    """By what a pass was given, or beside the columns before them."""
    before, gram = 4.0 * np.eye(block), 4.0 * np.eye(block)
    assert fell_within(machine, precision, gram, 1e-5, before, 0.9, 0.03) == 0
    gram[-1, -1] = 4 * 0.89**2
    assert fell_within(machine, precision, gram, 1e-5, before, 0.9, 0.03) == 1
    assert fell_within(machine, precision, gram, 1e-5, before, 0.88, 0.03) == 0
    gram[-1, -1] = 0.0
    assert fell_within(machine, precision, gram, 1e-5, before, 0.9, 0.03) == 1
    assert fell_within(machine, precision, gram, 1e-5, 0 * before, 0.9, 0.03) == 0
    if block > 1:
        for left, fell in ((0.04, 0), (0.02, 1), (1e-3, 1)):  # of norm 2; the last one is clamped
            gram = 4.0 * np.eye(block)
            gram[0, 1] = gram[1, 0] = 4 * (1 - left**2) ** 0.5
            assert fell_within(machine, precision, gram, 1e-5, before, 0.9, 0.03) == fell


def wide_panels(machine, precision, block):
    """Columns of a panel as float64, exactly; and products that are told 0 do nothing."""
    w = vectors((CHUNK_ROWS + 77, block), precision)
    count = max(1, block // 2)
    for first in range(0, block, count):
        assert np.array_equal(widened(machine, precision, w, first, count), w[:, first : first + count].astype(float))
    doubled = 2 * np.eye(block)
    assert np.array_equal(multiplied(machine, precision, w, doubled, unless=flag(machine, 0)), w)
    assert np.array_equal(multiplied(machine, precision, w, doubled, unless=flag(machine, 1)), 2 * w)


def recurrences(machine, precision, block):
    """Steps of Chebyshev's recurrence, wherever they go."""
    shape, unit = (CHUNK_ROWS + 77, block), np.finfo(precision.compute).eps
    w, x, previous = vectors(shape, precision), vectors(shape, precision)[::-1].copy(), vectors(shape, precision)[:, ::-1].copy()
    for before, into in ((None, "elsewhere"), (None, "w"), (previous, "elsewhere"), (previous, "w"), (previous, "previous")):
        found = recurred(machine, precision, w, x, before, 1.75, -0.3, into)
        wide = 1.75 * (w.astype(np.float64) + 0.3 * x.astype(np.float64)) - (0.0 if before is None else before)
        bound = 4 * unit * (1.75 * (np.abs(w) + 0.3 * np.abs(x)) + np.abs(previous)) + np.finfo(precision.storage).eps * np.abs(
            wide
        )
        assert found.dtype == precision.storage and np.all(np.abs(found - wide) <= bound)


def diagonals(machine, precision, block):
    """Entries times those of another panel, rounded once in the type of storage."""
    w, factors = vectors((CHUNK_ROWS + 77, block), precision), vectors((CHUNK_ROWS + 77, block), precision)[::-1].copy()
    assert entries_multiplied(machine, precision, w, factors).tobytes() == (w * factors).tobytes()
