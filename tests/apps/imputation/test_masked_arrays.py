"""Masked arrays at the doors of imputation: what is masked is missing, as NaN is; where nothing can be missing, it is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import ooc_chol as oc
from ooc_chol.apps import imputation as imp
from tests.masked import Door, array_parameters, check_real, check_refused

pytestmark = pytest.mark.usefixtures("one_blas_thread")

N = 16
GRAPH = imp.neighbour_graph([[k % 4, k // 4] for k in range(N)], 4)
X = oc.testing.low_rank_tensor(GRAPH, 3, 3, 1)
GAPS = np.zeros(X.shape, dtype=bool)
GAPS[::5] = True
MASKED = np.ma.masked_array(np.where(GAPS, 1e30, X), GAPS)
NANS = np.where(GAPS, np.nan, X)
PLACES = np.random.default_rng(0).uniform(size=(N, 2))

#: Every argument where nothing can be missing.
DOORS = {
    "neighbour_graph.places": Door(lambda a: imp.neighbour_graph(a, 3).data, PLACES),
    "relative_error.estimate": Door(lambda a: imp.relative_error(a, X), X),
    "relative_error.true": Door(lambda a: imp.relative_error(X, a), X),
    "relative_error.where": Door(lambda w: imp.relative_error(X, 1.1 * X, w), ~GAPS, False),
    "neighbour_means.mask": Door(lambda m: imp.neighbour_means(X, m, csr_array(GRAPH)), ~GAPS),
    "cross_validate.mask": Door(lambda m: imp.cross_validate(X, GRAPH, m, folds=2, devices="host:0").errors, ~GAPS),
    "fit.mask": Door(lambda m: imputer().fit(X, m).tensor_, ~GAPS),
}


def imputer():
    return imp.ConvolutionalImputer(GRAPH, devices="host:0")


@pytest.mark.parametrize("name", DOORS)
def test_no_door_takes_what_lies_beneath_a_mask(name, tmp_path):
    check_refused(DOORS[name], tmp_path)


@pytest.mark.parametrize("name", DOORS)
def test_no_door_drops_imaginary_parts(name):
    check_real(DOORS[name])


def test_every_array_that_is_taken_is_in_the_table():
    assert {*array_parameters({name: getattr(imp, name) for name in dir(imp) if not name.startswith("_")})} <= {*DOORS}


#: What is computed of a tensor with gaps.
WITH_GAPS = {
    "observed_mask": imp.observed_mask,
    "fit": lambda x: imputer().fit(x).tensor_,
    "fit_transform": lambda x: imputer().fit_transform(x),
    "transform": lambda x: imputer().fit(NANS).transform(x),
    "cross_validate": lambda x: imp.cross_validate(x, GRAPH, folds=2, devices="host:0").errors,
    "neighbour_means": lambda x: imp.neighbour_means(x, ~GAPS, csr_array(GRAPH)),
}


@pytest.mark.parametrize("name", WITH_GAPS)
def test_what_is_masked_is_missing_as_nan_is(name):
    np.testing.assert_array_equal(WITH_GAPS[name](MASKED), WITH_GAPS[name](NANS))
    np.testing.assert_array_equal(WITH_GAPS[name](np.ma.masked_array(NANS, False)), WITH_GAPS[name](NANS))


@pytest.mark.parametrize("ending", ["npy", "npz", "nc"])
def test_a_file_has_nan_where_the_tensor_is_masked(ending, tmp_path):
    imp.write_tensor(tmp_path / f"x.{ending}", MASKED)
    np.testing.assert_array_equal(imp.read_tensor(tmp_path / f"x.{ending}").tensor, NANS)
