"""What a space on devices promises, on whatever devices: each function checks one promise; NumPy's numbers beside."""

from __future__ import annotations

import numpy as np
import scipy.sparse

import ooc_chol as oc
from tests.inside.eigen import DeviceSpace, open_space
from tests.tolerances import unit_roundoff

#: Norms and inner products of unit vectors err by no more roundoffs of storage, and of computing.
MANY = 64


def symmetric_chunks(n: int = 3 * 65536 + 777, seed: int = 1) -> scipy.sparse.csr_array:
    """A symmetric matrix of several chunks of rows, about eight entries a row, a long row and empty ones."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, n, (2, 4 * n))
    hub = np.full(9000, n // 3)
    rows, columns = np.concatenate([rows, hub]), np.concatenate([columns, rng.integers(0, n, 9000)])
    is_kept = (rows % 1000 != 7) & (columns % 1000 != 7)
    values = rng.standard_normal(len(rows)) * (rows % 3 + 1)
    upper = scipy.sparse.coo_array((values[is_kept], (rows[is_kept], columns[is_kept])), shape=(n, n)).tocsr()
    return (upper + upper.T).tocsr()


def separated_chunks(n: int = 2 * 65536 + 777) -> scipy.sparse.csr_array:
    """The same of three chunks, with a few eigenvalues far from the others."""
    ends = np.r_[60.0, 50.0, 40.0, np.zeros(n - 3)]
    return (symmetric_chunks(n) / 16 + scipy.sparse.diags_array(ends)).tocsr()


def same_pairs(found: oc.Eigenpairs, expected: oc.Eigenpairs) -> None:
    """Assert that eigenpairs have the same bits."""
    for name in ("eigenvalues", "eigenvectors", "residuals"):
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes(), name


def roundoff(space: DeviceSpace) -> float:
    """That of storage, or of computing where that is larger, which it is not."""
    return MANY * float(unit_roundoff(space.precision.storage))


def cycle(space: DeviceSpace, panels: int, seed: int = 7) -> dict[str, np.ndarray]:
    """Steps of block Lanczos from random vectors; nothing is read before the end."""
    space.fill(seed)
    space.orthonormalize(0, "R0", range(0), is_next=True)
    for number in range(panels - 1):
        space.product(number)
        space.project(range(number + 1), f"C{number}")
        space.orthonormalize(number + 1, f"R{number + 1}", range(number + 1), is_next=number + 2 < panels)
    return space.read()


def recurrence(a, space: DeviceSpace, panels: int) -> None:
    """``A V_j = V C_j + V_{j+1} R_{j+1}`` with orthonormal V, within roundoff of storage."""
    found, b = cycle(space, panels), space.block
    v = space.take(range(panels))
    assert np.abs(v.T @ v - np.eye(panels * b)).max() <= roundoff(space)
    for number in range(panels - 1):
        made = a @ v[:, number * b : (number + 1) * b]
        size = np.linalg.norm(made, axis=0).max()
        told = (
            v[:, : (number + 1) * b] @ found[f"C{number}"] + v[:, (number + 1) * b : (number + 2) * b] @ found[f"R{number + 1}"]
        )
        assert np.linalg.norm(made - told, axis=0).max() <= roundoff(space) * size
        r = found[f"R{number + 1}"]
        assert np.array_equal(r, np.triu(r))


def panels_come_and_go(space: DeviceSpace) -> None:
    """What is brought, stored, loaded and taken is what it was, rounded to the type of storage."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, space.n, space.block))
    for number, each in enumerate(x):
        space.bring(each)
        space.store(number)
    space.load(0)
    space.store(2)
    side_by_side = np.concatenate([x[0], x[1], x[0]], axis=1).astype(space.precision.storage)
    assert np.array_equal(space.take(range(3)), side_by_side)
    for columns in {1, space.block, space.block + 1, 3 * space.block - 1}:  # the last panel in part, or not at all
        found = space.take(range(3), columns, space.precision.storage)
        assert found.dtype == space.precision.storage
        assert np.array_equal(found, side_by_side[:, :columns])


def sums_are_numpys(space: DeviceSpace) -> None:
    """Inner products, projections (twice where it must be) and rotations."""
    cycle(space, 3)
    v, b = space.take(range(3)).astype(np.longdouble), space.block
    rng = np.random.default_rng(4)
    x = v @ rng.standard_normal((3 * b, b)) + 1e-5 * v[:, :1] + rng.standard_normal((space.n, b)) * 1e-4
    space.bring(x.astype(float))
    space.store(3)
    x = space.take(range(3, 4)).astype(np.longdouble)
    scale = np.linalg.norm(x, axis=0).astype(float).max()
    space.load(3)
    space.inner(range(1, 3), "I")
    space.project(range(3), "C")
    space.store(4)
    found = space.read()
    assert np.abs(found["I"] - v[:, b:].T @ x).max() <= roundoff(space) * scale
    assert np.abs(found["C"] - v.T @ x).max() <= roundoff(space) * scale
    w = space.take(range(4, 5))
    left = np.linalg.norm(x - v @ (v.T @ x), axis=0)
    assert (np.abs(v.T @ w).max(axis=0) <= roundoff(space) * left).all()  # though most of x was in the span
    s = rng.standard_normal((3 * b, 2 * b))
    space.rotate(range(3), s, range(2))
    assert np.abs(space.take(range(2)) - v @ s).max() <= roundoff(space) * np.abs(v @ s).max()


def one_pass_is_one_where_it_is_asked_for(space: DeviceSpace) -> None:
    """Without ``again`` what is left of a vector in the span is less orthogonal to it, or as much."""
    cycle(space, 2)
    v, b = space.take(range(2)), space.block
    x = v @ np.random.default_rng(5).standard_normal((2 * b, b)) + 1e-3 * np.random.default_rng(6).standard_normal((space.n, b))
    cosines = []
    for again in (False, True):
        space.bring(x)
        space.project(range(2), "C", again=again)
        space.store(2)
        space.read()
        w = space.take(range(2, 3))
        cosines.append((np.abs(v.T @ w).max(axis=0) / np.linalg.norm(w, axis=0)).max())
    assert cosines[1] <= cosines[0]


def dependent_columns(space: DeviceSpace) -> None:
    """Equal columns, zeros, and columns in the span of the basis have a zero row in R, and become orthonormal ones."""
    b = space.block
    cycle(space, 3)
    v = space.take(range(3))
    rng = np.random.default_rng(8)
    x = rng.standard_normal((space.n, b))
    x -= v @ (v.T @ x)
    depends = np.zeros(b, bool)
    if b > 1:
        x[:, 1], depends[1] = x[:, 0], True
    if b > 2:
        x[:, b - 1], depends[b - 1] = 0.0, True
    space.bring(x)
    space.project(range(3), "C")
    space.store(3)
    space.orthonormalize(4, "R", range(3))
    r = space.read()["R"]
    x, q = space.take(range(3, 4)), space.take(range(4, 5))
    assert not r[depends].any() and r[~depends].any(axis=1).all()
    both = np.concatenate([v, q], axis=1)
    assert np.abs(both.T @ both - np.eye(both.shape[1])).max() <= roundoff(space)
    assert np.abs(q @ r - x).max() <= 4 * roundoff(space) * np.abs(x).max()


def columns_in_the_span(space: DeviceSpace) -> None:
    """What a projection leaves of vectors of the span is noise: all columns become new ones."""
    b = space.block
    cycle(space, 2)
    v = space.take(range(2))
    space.bring(np.zeros((space.n, b)))
    space.project(range(2), "C")
    space.orthonormalize(2, "R", range(2))
    assert not space.read()["R"].any()
    q = np.concatenate([v, space.take(range(2, 3))], axis=1)
    assert np.abs(q.T @ q - np.eye(3 * b)).max() <= roundoff(space)


def spaces_that_end(space: DeviceSpace) -> None:
    """Where the first, the last or all columns are in the span of the basis, roundoff that is left is orthogonal to it."""
    b = space.block
    rng = np.random.default_rng(10)
    for inside in (range(b), range(b // 2), range(b // 2, b)):
        cycle(space, 3)
        v = space.take(range(3))
        x = rng.standard_normal((space.n, b))
        x[:, inside] = v @ rng.standard_normal((3 * b, len(inside)))
        space.bring(x)
        space.store(4)
        space.project(range(3), "C")
        space.orthonormalize(3, "R", range(3))
        found = space.read()
        x, q = space.take(range(4, 5)), space.take(range(4))
        assert np.abs(q.T @ q - np.eye(4 * b)).max() <= roundoff(space)
        told = q @ np.concatenate([found["C"], found["R"]])
        assert (np.linalg.norm(told - x, axis=0) <= roundoff(space) * np.linalg.norm(x, axis=0)).all()


def nearly_dependent_columns(space: DeviceSpace) -> None:
    """Columns that differ by 1e-5, or 1e-9, or 1e-12 of their norm where storage knows that, lose nothing."""
    b = space.block
    rng = np.random.default_rng(9)
    small = [1e-5, 1e-9, 1e-12] if space.precision is oc.Precision.DDD else [1e-5]
    for size in small:
        x = rng.standard_normal((space.n, 1)) + size * rng.standard_normal((space.n, b))
        space.bring(x)
        space.store(0)
        space.orthonormalize(1, "R", range(0))
        r = space.read()["R"]
        x, q = space.take(range(1)), space.take(range(1, 2))
        assert np.abs(q.T @ q - np.eye(b)).max() <= roundoff(space)
        assert np.linalg.norm(q @ r - x, axis=0).max() <= roundoff(space) * np.linalg.norm(x, axis=0).max()


def residuals(a, space: DeviceSpace) -> None:
    """Those of float64, whatever the precision, of as many columns as there are values."""
    cycle(space, 3)
    b = space.block
    v = space.take(range(3))
    values = np.linspace(-2.0, 3.0, 2 * b)
    found = space.residuals(range(2), values)
    wanted = np.linalg.norm(a @ v[:, : 2 * b] - v[:, : 2 * b] * values, axis=0) / np.linalg.norm(v[:, : 2 * b], axis=0)
    assert np.allclose(found, wanted, rtol=1e-12)
    count = 2 * b - 1
    assert np.array_equal(space.residuals(range(2), values[:count]), found[:count])
    assert np.array_equal(space.take(range(3)), v)  # the basis is what it was
    space.product(1)
    space.store(3)
    made = a @ v[:, b : 2 * b]
    assert np.abs(space.take(range(3, 4)) - made).max() <= roundoff(space) * np.abs(made).max()


def filtered(space: DeviceSpace, name: str) -> None:
    """Inner products of the first panel with a polynomial of A times it; panels 3 and 4 are spoilt."""
    space.filter(0, range(3, 5), 6, center=0.25, half=-300.0)
    space.inner(range(1), name)


def multiplied_next(space: DeviceSpace, *, reads: bool = False) -> list[bytes]:
    """The bits of products with panels that were to be next: they are, or are not, or something else was done before.

    Where it ``reads``, coefficients are read before.
    """
    b, found, rng = space.block, list[bytes](), np.random.default_rng(8)
    v = cycle(space, 3) and space.take(range(3))

    def multiplied(panel: int) -> None:
        space.product(panel)
        space.store(3)
        found.append(space.take(range(3, 4)).tobytes())

    def made(x: np.ndarray, against: range = range(0)) -> None:
        space.bring(x)
        if against:
            space.project(against, "P")
        space.orthonormalize(2, "Q", against, is_next=True)
        if reads:
            space.read()

    x = rng.standard_normal((space.n, b))
    for given in (x, np.repeat(x[:, :1], b, axis=1), np.zeros((space.n, b)), v[:, :b] + 1e-6 * x, v[:, :b]):
        for against in (range(0), range(2)):
            made(given, against)
            multiplied(2)
    made(x)
    multiplied(1)
    made(x)
    space.move(2, 4)
    space.rotate(range(2), np.eye(2 * b)[::-1], range(2))
    multiplied(4)
    made(x)
    space.load(0)
    space.store(2)
    multiplied(2)
    made(x)
    space.fill(5)
    multiplied(2)
    near = x.copy()
    near[:, -1] = x[:, 0] + 1e-2 * x[:, -1]  # projected once more on its way
    made(near, range(2))
    space.fill(3)
    space.project(range(1), "P")
    multiplied(2)
    made(x)
    space.residuals(range(1), np.arange(1.0 * b))
    multiplied(2)
    made(x)
    space.rotate(range(3), np.eye(3 * b)[::-1], range(3))
    multiplied(2)
    return found


def everything(space: DeviceSpace) -> list[bytes]:
    """The bits of all that a space computes, in two cycles with a restart between, a dependent column and a filter."""
    found = cycle(space, 3)
    b = space.block
    s = np.linalg.qr(np.random.default_rng(1).standard_normal((3 * b, 2 * b)))[0]
    space.rotate(range(3), s, range(2))
    certified = space.residuals(range(2), np.arange(2.0 * b))
    space.product(1)
    space.project(range(2), "P")
    space.inner(range(3), "I")
    space.orthonormalize(2, "Q", range(2))
    for turn in range(3):
        filtered(space, f"T{turn}")
    space.bring(np.ones((space.n, b)))
    space.project(range(3), "O")
    space.orthonormalize(3, "S", range(3))
    found |= space.read()
    return [np.ascontiguousarray(found[name]).tobytes() for name in sorted(found)] + [
        certified.tobytes(),
        space.take(range(1, 4)).tobytes(),
    ]


def bits_and_bytes(space: DeviceSpace, wanted: list[bytes]) -> None:
    """The same bits as elsewhere; the bytes of blocks are those of the plan, and what is ahead fits in the ring."""
    assert everything(space) == wanted
    plan = space.plan
    assert sum(space.copied_bytes.values()) == plan.executed_bytes(space.passes)
    for share in plan.products.shares:
        a, kept = share.stored_bytes, share.kept_bytes
        link = f"{plan.products.tier}->{share.device}"
        assert space.copied_bytes[link] == (0 if share.in_place else space.passes * (a - kept) + kept)
    assert space.ahead_bytes <= sum(share.ring_bytes for share in plan.products.shares)
    n, b, size, columns = space.n, space.block, space.precision.storage.itemsize, plan.needs.wide_columns
    others, devices = len(plan.products.shares) - 1, len(plan.products.shares)
    certified = 2 * b // columns  # of the passes
    assert space.exchanged_bytes == others * n * ((space.passes - certified) * b * size + certified * columns * 8)
    # One panel, two thirds of a rotation, thetas and zeros; then the panels that were taken, norms and logs.
    small = space.precision.compute.itemsize
    coefficients = 2 * 3 * b**2 * small + certified * columns**2 * 8 + b**2 * small
    assert space.brought_bytes == n * b * size + devices * coefficients
    log = 3 * n * b * size + 3 * certified * columns**2 * 8
    assert log < space.returned_bytes < log + 100 * b**2 * small


def opened(a, block, precision, devices, **options) -> DeviceSpace:
    """A space of five panels."""
    return open_space(a, block=block, capacity=5, precision=precision, devices=devices, **options)
