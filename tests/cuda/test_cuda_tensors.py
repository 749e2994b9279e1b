"""Kernels of graph-tensor imputation on a GPU: the promises of those on the host, sums and filled entries to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol import Precision
from tests import tensor_checks as check
from tests.inside.kernels import SHRINKAGES, TensorShape, slice_group, tensor_kernels
from tests.panel_arrays import Gpu, Host

pytestmark = pytest.mark.cuda

FFF, FDF, DDD = Precision
every_precision = pytest.mark.parametrize("precision", Precision)
every_route = pytest.mark.parametrize("svt", ["gram64", "subspace"])
#: Of both of cuSOLVER's routines.
every_size = pytest.mark.parametrize("size", [*check.SIZES, (32, 32), (33, 40), (128, 96), (300, 512)])
LARGE = [(50, 50), (64, 50), (50, 70), (128, 96), (300, 512)]


@every_route
@every_precision
@every_size
def test_thresholds_of_ill_conditioned_slices_are_those_of_svd(svt, precision, size):
    for lam in (1e-4, 0.03):
        check.thresholds_are_those_of_svd(Gpu(), svt, precision, size, lam)


@every_route
@every_size
def test_lambda_zero_lambda_above_all_values_and_zero_slices(svt, size):
    check.edges_of_lambda(Gpu(), svt, size)


@every_route
@every_size
def test_equal_singular_values(svt, size):
    check.equal_values(Gpu(), svt, size)


@pytest.mark.parametrize("size", LARGE)
def test_warm_starts_are_enough_where_little_changes(size):
    check.warm_starts_are_enough(Gpu(), size)


@pytest.mark.parametrize("size", LARGE)
@pytest.mark.parametrize("shrinkage", SHRINKAGES)
def test_second_tries_are_enough_where_much_changes(size, shrinkage):
    check.second_tries_are_enough(Gpu(), size, shrinkage)


@pytest.mark.parametrize("size", [(50, 50), (64, 50), (50, 70)])
def test_the_certificate_refuses_a_start_without_the_leading_vectors(size):
    check.the_certificate_refuses(Gpu(), size)
    check.starts_that_lack_vectors_cost_no_accuracy(Gpu(), size)
    check.inaccurate_pairs_are_refused(Gpu(), size)


@every_route
@every_precision
@pytest.mark.parametrize("size", [(50, 50), (64, 50), (50, 70), (12, 12)])
def test_joined_slices_are_lowered_as_one_matrix(svt, precision, size):
    check.joined_slices_are_one_matrix(Gpu(), svt, precision, size)
    if size[0] == size[1] and svt != "subspace":
        check.joined_slices_are_one_matrix(Gpu(), svt, precision, size, across=True)


@every_route
def test_slices_that_are_not_finite_are_told_and_spoil_no_other(svt):
    check.slices_that_are_not_finite(Gpu(), svt)


def test_groups_make_the_same_bits_in_one_call_and_in_two():
    count = slice_group(50, 50) + 100
    slices = np.concatenate([check.low_rank(count - 50, 50, 50, 4, 1e-3), check.conditioned(50, 50, 50)]).astype(np.float32)
    machine, first = Gpu(), slice_group(50, 50)
    whole = check.lowered(machine, slices, 0.02, "gram64")
    with check.opened(machine, (count, count, 50, 50), FDF, "gram64") as kernels:
        for part in (slice(first, count), slice(0, first)):  # in another order, and with what the other left behind
            given = machine.bring(slices[part])
            ranks, flags = (machine.bring(np.empty(len(given), np.int32)) for _ in range(2))
            kernels.threshold(machine.stream(), given, 0.02, ranks, flags)
            assert machine.take(given).tobytes() == whole[0][part].tobytes()
            assert machine.take(ranks).tobytes() == whole[1][part].tobytes()


@every_route
@every_precision
def test_slices_that_lie_panel_by_panel_have_the_same_bits(svt, precision):
    check.panels_change_no_bit(Gpu(), svt, precision)


@every_precision
def test_norms_are_the_largest_singular_values(precision):
    for size in check.SIZES:
        slices = check.conditioned(5, *size).astype(precision.storage)
        slices[2] = 0
        expected = np.linalg.norm(slices.astype(float), 2, axis=(1, 2))
        assert np.allclose(check.norms(Gpu(), slices, precision), expected, rtol=1e-12, atol=1e-300)


@every_precision
@pytest.mark.parametrize(("n", "r", "width"), [(60, 60, 700), (90, 20, 256), (33, 5, 1), (1, 1, 3), (41, 40, 4095)])
def test_transforms_are_within_their_bounds(precision, n, r, width):
    check.transforms_are_within_their_bounds(Gpu(), precision, n, r, width)


@every_precision
@pytest.mark.parametrize("by_entry", [False, True])
@pytest.mark.parametrize(("rows", "width", "momentum"), [(5, 300, 0.0), (300, 7, 0.4), (3, 1025, 0.9), (1, 1, 1.5)])
def test_filling_to_the_bit(precision, rows, width, momentum, by_entry):
    check.filling(Gpu(), precision, rows, width, momentum, by_entry=by_entry)


@every_route
def test_a_step_is_that_of_the_host(svt):
    slices = np.concatenate([check.low_rank(40, 50, 64, 5, 1e-3), check.conditioned(20, 50, 64)]).astype(np.float32)
    for lam in (0.3, 0.02, 1e-4):
        host, gpu = (check.lowered(machine, slices, lam, svt) for machine in (Host(), Gpu()))
        assert np.linalg.norm(host[0] - gpu[0]) <= check.THRESHOLD_RTOL * np.linalg.norm(slices)
        assert host[1].tolist() == gpu[1].tolist()


def test_the_reference_is_the_hosts():
    with pytest.raises(ValueError, match='svt="svd" is the reference on the host'):
        tensor_kernels("cuda:0", TensorShape(4, 4, 5, 5), FDF, "svd")
