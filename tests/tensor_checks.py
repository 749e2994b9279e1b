"""What kernels of graph-tensor imputation promise, on the host and on a GPU."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from ooc_chol import Precision
from tests.inside.kernels import PanelSlices, TensorShape, tensor_kernels, tensor_workspace_bytes
from tests.tensor_runs import shrunk
from tests.tolerances import product_bound, unit_roundoff

FFF, FDF, DDD = Precision
#: Relative error of a threshold of data in float32, the issue's D1; one rounding to storage is most of it.
THRESHOLD_RTOL = 1e-7
#: The same in float64, where the tolerance of a subspace is 2**-34 and Gram matrices cost half of the digits of small values.
WIDE_RTOL = 1e-9
#: Rows and columns of slices: both orientations, vectors, and orders at which a subspace is narrower than all.
SIZES = [(50, 50), (64, 50), (50, 70), (48, 48), (1, 9), (9, 1), (1, 1), (5, 3)]


@contextmanager
def opened(machine, shape, precision, svt="auto"):
    """Kernels bound to a workspace of their own."""
    kernels = tensor_kernels(machine.name, TensorShape(*shape), precision, svt, machine.threads)
    try:
        nbytes = kernels.workspace_bytes(0)
        assert nbytes == tensor_workspace_bytes(machine.name, TensorShape(*shape), precision, svt)
        workspace = machine.bring(np.zeros(max(1, nbytes), np.uint8))
        kernels.bind(0, workspace.data.ptr if nbytes else 0)
        yield kernels
    finally:
        kernels.close()


def lowered(machine, slices, lam, svt, precision=FDF, basis=None, shrinkage="soft", **how):
    """Slices with singular values lowered, ranks and flags; a basis is changed in place."""
    count, m, n = slices.shape
    with opened(machine, (count, count, m, n), precision, svt) as kernels:
        given = machine.bring(np.ascontiguousarray(slices, precision.storage))
        ranks, flags = (machine.bring(np.full(count, 77, np.int32)) for _ in range(2))
        start = None if basis is None else machine.bring(basis)
        kernels.threshold(machine.stream(), given, lam, ranks, flags, basis=start, shrinkage=shrinkage, **how)
        made = machine.take(given), machine.take(ranks), machine.take(flags)
        if basis is not None:
            basis[...] = machine.take(start)
    return made


def norms(machine, slices, precision=FDF, svt="gram64", **how):
    count, m, n = slices.shape
    with opened(machine, (count, count, m, n), precision, svt) as kernels:
        out = machine.bring(np.full(count, np.nan))
        kernels.norms(machine.stream(), machine.bring(np.ascontiguousarray(slices, precision.storage)), out, **how)
        return machine.take(out)


def panels_change_no_bit(machine, svt, precision):
    """Slices that lie panel by panel among others, which stay as they are; the last panel is short."""
    rows, first, count, (m, n), columns = 9, 2, 5, (50, 97), 4096
    whole = np.concatenate([low_rank(4, m, n, 3, 1e-3), conditioned(5, m, n)]).astype(precision.storage)
    own = whole[first : first + count]
    for lam in (0.0, 0.02):
        expected = lowered(machine, own, lam, svt, precision)
        with opened(machine, (count, count, m, n), precision, svt) as kernels:
            flat = whole.reshape(rows, -1)
            parts = [flat[:, at : at + columns] for at in range(0, m * n, columns)]
            memory = machine.bring(np.concatenate([each.reshape(-1) for each in parts]))
            given = PanelSlices(memory, rows, columns, first, count)
            ranks, flags, sizes = (machine.bring(np.full(count, 77, dtype)) for dtype in (np.int32, np.int32, np.float64))
            kernels.norms(machine.stream(), given, sizes)
            assert machine.take(sizes).tobytes() == norms(machine, own, precision, svt).tobytes()
            kernels.threshold(machine.stream(), given, lam, ranks, flags)
            made = np.concatenate(list(PanelSlices(machine.take(memory), rows, columns, 0, rows).panels()), axis=1)
        assert made[first : first + count].tobytes() == expected[0].tobytes()
        assert machine.take(ranks).tobytes() == expected[1].tobytes()
        assert machine.take(flags).tobytes() == expected[2].tobytes()
        others = np.r_[0:first, first + count : rows]
        assert made[others].tobytes() == flat[others].tobytes()


def transformed(machine, basis, panel, precision, *, inverse=False, rows_apart=0):
    """A panel's transform; with ``rows_apart`` both panels are parts of wider arrays."""
    (n, r), width = basis.shape, panel.shape[1]
    with opened(machine, (n, r, 1, width), precision) as kernels:
        stride, made = width + rows_apart, n if inverse else r
        given = np.full((len(panel), stride), 9, precision.storage)
        given[:, :width] = panel
        here, out = machine.bring(given), machine.bring(np.full((made, stride), np.nan, precision.storage))
        kernels.transform(
            machine.stream(), machine.bring(basis.astype(precision.compute)), here[:, :width], out[:, :width], inverse=inverse
        )
        found = machine.take(out)
        assert np.isnan(found[:, width:]).all()
        return np.ascontiguousarray(found[:, :width])


def filled(machine, arrays, mask, precision, momentum=0.0):
    """X and the sums; ``arrays`` are z, observed and x."""
    rows, width = arrays[0].shape
    with opened(machine, (rows, rows, 1, width), precision) as kernels:
        z, observed, x = (machine.bring(each.astype(precision.storage)) for each in arrays)
        sums = machine.bring(np.full(2, np.nan))
        kernels.fill(machine.stream(), z, observed, machine.bring(mask), x, sums, momentum=momentum)
        return machine.take(x), machine.take(sums)


def exact(slices, lam, shrinkage="soft"):
    """Singular values lowered, by SVD in float64, and how many are left."""
    left, values, right = np.linalg.svd(slices.astype(np.float64), full_matrices=False)
    return (left * shrunk(values, lam, shrinkage)[:, None, :]) @ right, np.count_nonzero(values > lam, axis=1)


def conditioned(count, m, n, least=1e-6, seed=0):
    """Slices with norm 1 and singular values that fall evenly, on the logarithm, to ``least``."""
    rng, d = np.random.default_rng(seed), min(m, n)
    left, right = (np.linalg.qr(rng.standard_normal((count, each, d)))[0] for each in (m, n))
    return (left * np.geomspace(1, least, d)) @ right.transpose(0, 2, 1)


def low_rank(count, m, n, rank, noise, seed=0):
    """Slices of a rank with values from 1 down to 0.2, and noise of norm ``noise``."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((count, each, rank)))[0] for each in (m, n))
    more = rng.standard_normal((count, m, n))
    more *= noise / np.linalg.norm(more, 2, axis=(1, 2))[:, None, None]
    return (left * np.linspace(1, 0.2, rank)) @ right.transpose(0, 2, 1) + more


def empty_basis(slices, machine):
    """The warm start of slices that have none yet."""
    count, m, n = slices.shape
    kernels = tensor_kernels(machine.name, TensorShape(count, count, m, n), FDF, "subspace", 1)
    return np.zeros((count, min(m, n), kernels.basis_columns))


def relative_errors(made, expected):
    """Of each slice, as a share of its norm; of zero ones, their own."""
    sizes = np.linalg.norm(expected, axis=(1, 2))
    return np.linalg.norm(made - expected, axis=(1, 2)) / np.where(sizes, sizes, 1)


def thresholds_are_those_of_svd(machine, svt, precision, size, lam, shrinkage="soft"):
    """For data as they are stored, of condition 1e6; errors count relative to the slice's norm of 1."""
    slices = conditioned(7, *size).astype(precision.storage)
    expected, kept = exact(slices, lam, shrinkage)
    basis = empty_basis(slices, machine) if svt == "subspace" else None
    for _ in range(2 if svt == "subspace" else 1):
        made, ranks, _ = lowered(machine, slices, lam, svt, precision, basis, shrinkage)
        errors = np.linalg.norm(made - expected, axis=(1, 2)) / np.linalg.norm(slices, axis=(1, 2))
        assert errors.max() <= (WIDE_RTOL if precision is DDD else THRESHOLD_RTOL)
        assert ranks.tolist() == kept.tolist()


def joined_slices_are_one_matrix(machine, svt, precision, size, *, across=False):
    """Runs of slices are lowered as the matrix of all of them, whatever basis of their span they are; others by themselves."""
    runs = (range(1, 4), range(5, 7))
    common = low_rank(1, *size, 3, 0.0)[0]
    slices = conditioned(8, *size, least=1e-3)
    slices[1:4] = [common, 0.5 * common, 0.2 * slices[3]]
    turn = np.linalg.qr(np.random.default_rng(9).standard_normal((3, 3)))[0]
    turned = slices.copy()
    turned[1:4] = np.tensordot(turn, slices[1:4], 1)
    is_tall = (size[0] >= size[1]) != across
    for given in (slices, turned):
        given = given.astype(precision.storage)
        expected, kept = exact(given, 0.03)
        sizes = np.linalg.norm(given.astype(float), 2, axis=(1, 2))
        for run in runs:
            own = slice(run.start, run.stop)
            matrix = (np.concatenate if is_tall else np.hstack)(list(given[own]))
            (whole,), rank = exact(matrix[None], 0.03)
            expected[own], kept[own] = np.split(whole, len(run), axis=0 if is_tall else 1), rank
            by_itself = (np.concatenate if size[0] >= size[1] else np.hstack)(list(given[own])).astype(float)
            sizes[own] = np.linalg.norm(by_itself, 2)
        basis = empty_basis(given, machine) if svt == "subspace" else None
        for _ in range(2 if svt == "subspace" else 1):
            made, ranks, _ = lowered(machine, given, 0.03, svt, precision, basis, joined=runs, across=across)
            assert relative_errors(made, expected).max() <= (WIDE_RTOL if precision is DDD else 10 * THRESHOLD_RTOL)
            assert ranks.tolist() == kept.tolist()
        assert np.allclose(norms(machine, given, precision, svt, joined=runs), sizes, rtol=1e-9)


def edges_of_lambda(machine, svt, size):
    """Nothing is touched for 0; nothing is left from the largest value on; a zero slice stays zero."""
    slices = conditioned(5, *size, least=1e-3).astype(np.float32)
    slices[3] = 0
    basis = empty_basis(slices, machine) if svt == "subspace" else None
    made, ranks, _ = lowered(machine, slices, 0.0, svt, FDF, basis)
    assert made.tobytes() == slices.tobytes()
    assert ranks.tolist() == [0 if at == 3 else min(size) for at in range(5)]
    for lam in (1.001, 50.0):
        made, ranks, _ = lowered(machine, slices, lam, svt, FDF, basis)
        assert not made.any() and not ranks.any()


def equal_values(machine, svt, size):
    """All values are 2: every vector is a singular vector, and lowering is a scaling."""
    m, n = size
    slices = 2 * np.linalg.qr(np.random.default_rng(1).standard_normal((4, max(size), min(size))))[0]
    slices = (slices if m >= n else slices.transpose(0, 2, 1)).astype(np.float32)
    basis = empty_basis(slices, machine) if svt == "subspace" else None
    for _ in range(2):
        made, ranks, _ = lowered(machine, slices, 0.5, svt, FDF, basis)
        assert relative_errors(made, 0.75 * slices.astype(float)).max() <= 1.5e-7
        assert (ranks == min(size)).all()


def warm_starts_are_enough(machine, size, noise=1e-5, change=1e-6, lam=0.01, shrinkage="soft"):
    """A second step that is near the first needs no full route, and makes what SVD makes."""
    first = low_rank(9, *size, 5, noise).astype(np.float32)
    second = (first + change * np.random.default_rng(5).standard_normal(first.shape)).astype(np.float32)
    basis = empty_basis(first, machine)
    _, _, flags = lowered(machine, first, lam, "subspace", FDF, basis, shrinkage)
    assert (flags == 1).all()
    made, ranks, flags = lowered(machine, second, lam, "subspace", FDF, basis, shrinkage)
    expected, kept = exact(second, lam, shrinkage)
    assert not flags.any()
    assert ranks.tolist() == kept.tolist() == [5] * 9
    assert relative_errors(made, expected).max() <= THRESHOLD_RTOL


def second_tries_are_enough(machine, size, shrinkage="soft"):
    """Much changes from step to step, and many values below lambda have a norm above it together: yet there is no full route."""
    first = low_rank(9, *size, 5, 0.15).astype(np.float32)
    change = 0.04 / (np.sqrt(size[0]) + np.sqrt(size[1]))
    second = (first + change * np.random.default_rng(5).standard_normal(first.shape)).astype(np.float32)
    basis = empty_basis(first, machine)
    for slices, flag in ((first, 1), (second, 0), (first, 0)):
        made, ranks, flags = lowered(machine, slices, 0.19, "subspace", FDF, basis, shrinkage)
        expected, kept = exact(slices, 0.19, shrinkage)
        assert flags.tolist() == [flag] * 9
        assert ranks.tolist() == kept.tolist()
        assert relative_errors(made, expected).max() <= THRESHOLD_RTOL


def the_certificate_refuses(machine, size):
    """A warm start without the leading vectors: slice 0 has all of them outside, slice 1 one, slice 2 none.

    Slices 3 and 4 lack a vector whose value is hardly above lambda, and hardly below. The other values are large enough that
    roundings do not turn the subspace towards what it lacks, neither by products nor by filters.
    """
    rng, d, lam = np.random.default_rng(2), min(size), 0.8
    left, right = (np.linalg.qr(rng.standard_normal((5, each, d)))[0] for each in size)
    values = np.full((5, d), 0.7)
    values[:, :5] = np.linspace(1, 0.9, 5)
    values[3:, 5] = lam * (1 + 1e-6), lam * (1 - 1e-6)
    slices = (left * values[:, None, :]) @ right.transpose(0, 2, 1)
    vectors = right if size[0] >= size[1] else left
    c = empty_basis(slices, machine).shape[2]
    first = [np.arange(c) + begin for begin in (5, 1, 0)]
    lacking = [*first, *2 * [np.delete(np.arange(c + 1), 5)]]
    basis = np.ascontiguousarray(np.stack([v[:, at] for v, at in zip(vectors, lacking, strict=True)]))
    given = basis.copy()
    made, ranks, flags = lowered(machine, slices, lam, "subspace", DDD, basis)
    expected, _ = exact(slices, lam)
    assert flags.tolist() == [1, 1, 0, 1, 0]
    assert ranks.tolist() == [5, 5, 5, 6, 5]
    assert relative_errors(made, expected).max() <= WIDE_RTOL
    assert not np.array_equal(basis[0], given[0])  # the next step starts with what was found
    again, ranks, flags = lowered(machine, slices, lam, "subspace", DDD, basis)
    assert not flags.any() and ranks.tolist() == [5, 5, 5, 6, 5]
    assert relative_errors(again, expected).max() <= WIDE_RTOL


def starts_that_lack_vectors_cost_no_accuracy(machine, size):
    """Where values above lambda are far above the others, so that roundings may turn a filtered subspace towards them."""
    rng, d = np.random.default_rng(2), min(size)
    left, right = (np.linalg.qr(rng.standard_normal((3, each, d)))[0] for each in size)
    values = np.full(d, 0.02)
    values[:5] = np.linspace(1, 0.6, 5)
    slices = (left * values) @ right.transpose(0, 2, 1)
    vectors = right if size[0] >= size[1] else left
    c = empty_basis(slices, machine).shape[2]
    basis = np.ascontiguousarray(np.stack([vectors[at][:, begin : begin + c] for at, begin in enumerate((5, 1, 0))]))
    made, ranks, flags = lowered(machine, slices, 0.1, "subspace", DDD, basis)
    expected, _ = exact(slices, 0.1)
    assert flags[2] == 0 and ranks.tolist() == [5, 5, 5]
    assert relative_errors(made, expected).max() <= WIDE_RTOL


def inaccurate_pairs_are_refused(machine, size):
    """No value is missing, but a vector that is kept leans towards one just below lambda, which the subspace has not.

    The other values are near enough that neither products nor filters tell them apart.
    """
    rng, d = np.random.default_rng(6), min(size)
    left, right = (np.linalg.qr(rng.standard_normal((2, each, d)))[0] for each in size)
    values = np.full(d, 0.08)
    values[:6] = 1.0, 0.8, 0.6, 0.5, 0.12, 0.09
    slices = (left * values) @ right.transpose(0, 2, 1)
    vectors = right if size[0] >= size[1] else left
    c = empty_basis(slices, machine).shape[2]
    basis = np.ascontiguousarray(np.delete(vectors, 5, axis=2)[:, :, :c])
    basis[0][:, 4] += 0.1 * vectors[0][:, 5]
    made, ranks, flags = lowered(machine, slices, 0.1, "subspace", DDD, basis)
    expected, _ = exact(slices, 0.1)
    assert flags.tolist() == [1, 0] and ranks.tolist() == [5, 5]
    assert relative_errors(made, expected).max() <= WIDE_RTOL


def slices_that_are_not_finite(machine, svt):
    """They are told, and spoil no other."""
    slices = low_rank(4, 50, 50, 3, 1e-4).astype(np.float32)
    expected, kept = exact(slices, 0.01)
    slices[1, 4, 4], slices[2, 7, 0] = np.nan, np.inf
    for lam in (0.01, 0.0):
        basis = empty_basis(slices, machine) if svt == "subspace" else None
        made, ranks, flags = lowered(machine, slices, lam, svt, FDF, basis)
        assert flags.tolist() == [1, -1, -1, 1]
        assert np.isnan(made[[1, 2]]).all()
        assert relative_errors(made[[0, 3]], expected[[0, 3]] if lam else slices[[0, 3]]).max() <= THRESHOLD_RTOL
        assert not lam or ranks[[0, 3]].tolist() == kept[[0, 3]].tolist()


def slices_alone_and_together(machine, svt, count):
    """Slice by slice, as one call, and in two calls that share no group: the same bits."""
    slices = np.concatenate([low_rank(count - 2, 50, 50, 4, 1e-3), conditioned(2, 50, 50)]).astype(np.float32)
    results = []
    for parts in ([slice(0, count)], [slice(0, 5), slice(5, count)]):
        basis = empty_basis(slices, machine) if svt == "subspace" else None
        for _ in range(2):
            made = [lowered(machine, slices[p], 0.02, svt, FDF, None if basis is None else basis[p]) for p in parts]
        results.append([np.concatenate(each).tobytes() for each in zip(*made, strict=True)])
    assert results[0] == results[1]


def transforms_are_within_their_bounds(machine, precision, n, r, width):
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.standard_normal((n, r)))[0].astype(precision.compute)
    for inverse in (False, True):
        panel = rng.standard_normal((r if inverse else n, width)).astype(precision.storage)
        left = basis if inverse else basis.T
        expected = left.astype(np.longdouble) @ panel
        bound = product_bound(left, panel, precision.compute) + unit_roundoff(precision.storage) * np.abs(expected)
        made = transformed(machine, basis, panel, precision, inverse=inverse)
        assert np.all(np.abs(made - expected) <= bound)
        for apart in (1, 4):
            other = transformed(machine, basis, panel, precision, inverse=inverse, rows_apart=apart)
            assert other.tobytes() == made.tobytes()


def filling(machine, precision, rows, width, momentum, *, by_entry):
    """To the bit: X, and sums in the order that the interface states."""
    rng = np.random.default_rng(8)
    z, observed, x = (rng.standard_normal((rows, width)).astype(precision.storage) for _ in range(3))
    mask = rng.integers(0, 2, (rows, width) if by_entry else rows, np.uint8)
    given = np.broadcast_to(mask if by_entry else mask[:, None], x.shape) == 1
    observed[~given] = np.nan
    made, sums = filled(machine, (z, observed, x), mask, precision, momentum)
    wide = z.astype(precision.compute)
    step = precision.compute.type(momentum)
    estimate = (wide + step * (wide - x.astype(precision.compute))).astype(precision.storage)
    expected = np.where(given, observed, estimate)
    assert made.tobytes() == expected.tobytes()
    changes = np.where(given, 0, expected.astype(float) - x)
    assert sums.tolist() == [in_order([in_order(row * row) for row in each]) for each in (changes, x.astype(float))]


def in_order(terms):
    """256 partial sums, each in the order of its terms, folded in halves."""
    sums = [0.0] * 256
    for at, term in enumerate(terms):
        sums[at % 256] += float(term)
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [sums[at] + sums[at + half] for at in range(half)]
    return sums[0]
