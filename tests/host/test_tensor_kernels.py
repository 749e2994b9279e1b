"""Kernels of graph-tensor imputation on the host: what SVD says, bits that nothing changes, a certificate that refuses."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from ooc_chol import Precision
from tests import tensor_checks as check
from tests.inside.kernels import SHRINKAGES, HostTensorKernels, TensorShape, resolve_svt, slice_group, subspace_columns
from tests.panel_arrays import Host

FFF, FDF, DDD = Precision
HOST = Host()
every_precision = pytest.mark.parametrize("precision", Precision)
every_route = pytest.mark.parametrize("svt", ["gram64", "subspace", "svd"])
every_size = pytest.mark.parametrize("size", check.SIZES)


@every_route
@every_precision
@every_size
def test_thresholds_of_ill_conditioned_slices_are_those_of_svd(svt, precision, size):
    for lam, shrinkage in product((1e-4, 0.03), SHRINKAGES):
        check.thresholds_are_those_of_svd(HOST, svt, precision, size, lam, shrinkage)


@every_route
@every_size
def test_lambda_zero_lambda_above_all_values_and_zero_slices(svt, size):
    check.edges_of_lambda(HOST, svt, size)


@every_route
@every_size
def test_equal_singular_values(svt, size):
    check.equal_values(HOST, svt, size)


@pytest.mark.parametrize("size", [(50, 50), (64, 50), (50, 70)])
def test_warm_starts_are_enough_where_little_changes(size):
    for shrinkage in SHRINKAGES:
        check.warm_starts_are_enough(HOST, size, shrinkage=shrinkage)


@pytest.mark.parametrize("size", [(50, 50), (64, 50), (50, 70)])
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
def test_second_tries_are_enough_where_much_changes(size, shrinkage):
    check.second_tries_are_enough(HOST, size, shrinkage)


@pytest.mark.parametrize("size", [(50, 50), (64, 50), (50, 70)])
def test_the_certificate_refuses_a_start_without_the_leading_vectors(size):
    check.the_certificate_refuses(HOST, size)
    check.starts_that_lack_vectors_cost_no_accuracy(HOST, size)
    check.inaccurate_pairs_are_refused(HOST, size)


@every_route
def test_a_slice_becomes_the_same_whatever_is_beside_it(svt):
    check.slices_alone_and_together(HOST, svt, 70)


@every_route
def test_threads_change_no_bit(svt):
    slices = np.concatenate([check.low_rank(60, 50, 50, 4, 1e-3), check.conditioned(9, 50, 50)]).astype(np.float32)
    made = []
    for threads in (1, 2, 3):
        basis = check.empty_basis(slices, HOST) if svt == "subspace" else None
        for _ in range(2):
            found = check.lowered(Host(threads), slices, 0.02, svt, FDF, basis)
        made.append([each.tobytes() for each in found])
    assert made[0] == made[1] == made[2]


def test_thresholds_without_a_warm_start_take_the_full_route():
    slices = check.low_rank(4, 50, 50, 3, 0.0).astype(np.float32)
    made, _, flags = check.lowered(HOST, slices, 0.1, "subspace")
    by_gram, _, _ = check.lowered(HOST, slices, 0.1, "gram64")
    assert flags.all() and made.tobytes() == by_gram.tobytes()


def test_slices_below_lambda_need_no_eigenpairs_and_keep_their_start():
    """Where the norm of all values together is not above lambda; where only each is below, a second try proves it."""
    slices = np.stack([1e-3 * np.eye(50), np.eye(50), np.zeros((50, 50))]).astype(np.float32)
    basis = np.random.default_rng(0).standard_normal((3, 50, 16))
    before = basis.copy()
    made, ranks, flags = check.lowered(HOST, slices, 1.5, "subspace", FDF, basis)
    assert not made.any() and not ranks.any()
    assert not flags.any()
    assert np.array_equal(basis[[0, 2]], before[[0, 2]]) and not np.array_equal(basis[1], before[1])


@every_route
@every_precision
@pytest.mark.parametrize("size", [(50, 50), (64, 50), (50, 70), (12, 12)])
def test_joined_slices_are_lowered_as_one_matrix(svt, precision, size):
    check.joined_slices_are_one_matrix(HOST, svt, precision, size)
    if size[0] == size[1] and svt != "subspace":
        check.joined_slices_are_one_matrix(HOST, svt, precision, size, across=True)


@every_route
def test_slices_that_are_not_finite_are_told_and_spoil_no_other(svt):
    check.slices_that_are_not_finite(HOST, svt)


@every_route
@every_precision
def test_slices_that_lie_panel_by_panel_have_the_same_bits(svt, precision):
    check.panels_change_no_bit(HOST, svt, precision)


@every_precision
def test_norms_are_the_largest_singular_values(precision):
    for size in check.SIZES:
        slices = check.conditioned(5, *size).astype(precision.storage)
        slices[2] = 0
        expected = np.linalg.norm(slices.astype(float), 2, axis=(1, 2))
        slices[3, 0, 0], expected[3] = np.nan, np.nan
        assert np.allclose(check.norms(HOST, slices, precision), expected, rtol=1e-12, atol=0, equal_nan=True)


@every_precision
@pytest.mark.parametrize(("n", "r", "width"), [(60, 60, 700), (90, 20, 256), (33, 5, 1), (1, 1, 3), (40, 40, 4096)])
def test_transforms_are_within_their_bounds(precision, n, r, width):
    check.transforms_are_within_their_bounds(HOST, precision, n, r, width)


@every_precision
def test_threads_change_no_bit_of_transforms_and_sums(precision):
    rng = np.random.default_rng(4)
    basis, panel = np.linalg.qr(rng.standard_normal((80, 80)))[0], rng.standard_normal((80, 1100))
    arrays, mask = [rng.standard_normal((301, 1100)) for _ in range(3)], rng.integers(0, 2, 301, np.uint8)
    made = []
    for threads in (1, 2, 3):
        transformed = check.transformed(Host(threads), basis, panel.astype(precision.storage), precision)
        made.append([transformed.tobytes(), *(each.tobytes() for each in check.filled(Host(threads), arrays, mask, precision))])
    assert made[0] == made[1] == made[2]


@every_precision
@pytest.mark.parametrize("by_entry", [False, True])
@pytest.mark.parametrize(("rows", "width", "momentum"), [(5, 300, 0.0), (300, 7, 0.4), (3, 1025, 0.9), (1, 1, 1.5)])
def test_filling_to_the_bit(precision, rows, width, momentum, by_entry):
    check.filling(HOST, precision, rows, width, momentum, by_entry=by_entry)


def test_groups_and_subspaces_depend_on_slices_alone():
    assert (slice_group(50, 50), slice_group(64, 64), slice_group(512, 512), slice_group(60000, 60000)) == (1024, 1024, 85, 1)
    assert (subspace_columns(50, 900), subspace_columns(512, 512), subspace_columns(3, 3)) == (16, 64, 3)
    assert (resolve_svt("auto", 48, 99), resolve_svt("auto", 99, 47), resolve_svt("svd", 9, 9)) == ("subspace", "gram64", "svd")


def refusals():
    panel, mask = np.zeros((6, 20), np.float32), np.zeros(6, np.uint8)
    slices, counts = np.zeros((6, 4, 5), np.float32), np.zeros(6, np.int32)
    basis, sums = np.eye(6), np.zeros(2)
    yield (
        "transform",
        (basis.astype(np.float32), panel, panel.copy()),
        {},
        r"basis is float32 .* float64 of shape .6, 6.",
    )
    yield "transform", (basis, panel[:5], panel.copy()), {}, "panel is float32 of shape (5, 20)"
    yield "transform", (basis, panel.astype(float), panel.copy()), {}, "panel is float64"
    yield "transform", (basis, panel[:, ::2], panel.copy()), {}, "of 6 rows of adjacent columns"
    yield "transform", (basis, panel[:, :9], panel.copy()), {}, "panel has 9 columns and out has 20"
    yield "fill", (panel, panel, mask.astype(bool), panel, sums), {}, "mask is bool of shape (6,)"
    yield "fill", (panel, panel[:, :3], mask, panel, sums), {}, "observed has shape (6, 3)"
    yield "fill", (panel, panel, mask, panel, sums), {"momentum": np.nan}, "momentum is nan"
    yield "fill", (panel, panel, mask, panel, sums[:1]), {}, "sums is float64 of shape (1,)"
    yield "threshold", (slices.transpose(0, 2, 1), 1.0, counts, counts), {}, "slices is float32 of shape (6, 5, 4)"
    yield "threshold", (slices, -1.0, counts, counts), {}, "lam is -1.0"
    yield "threshold", (slices, 1.0, counts.astype(np.int64), counts), {}, "ranks is int64"
    yield "threshold", (slices, 1.0, counts, counts), {"basis": np.zeros((6, 4, 4))}, 'only "subspace" has a warm start'
    yield "norms", (slices, sums), {}, "out is float64 of shape (2,)"


@pytest.mark.parametrize(("name", "arguments", "options", "text"), list(refusals()))
def test_what_does_not_fit_is_refused(name, arguments, options, text):
    kernels = HostTensorKernels(TensorShape(6, 6, 4, 5), FDF, "gram64")
    with pytest.raises(ValueError, match=text if ".*" in text else re.escape(text)):
        getattr(kernels, name)(HOST.stream(), *arguments, **options)


def test_routes_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match=r"svt='polar': .* 'auto', 'gram64', 'subspace', 'svd'"):
        HostTensorKernels(TensorShape(6, 6, 4, 5), FDF, "polar")
