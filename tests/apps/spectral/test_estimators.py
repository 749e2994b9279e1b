"""Estimators: scikit-learn's own checks, what they share with the functions, and that they work without scikit-learn."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone, is_clusterer
from sklearn.utils import estimator_checks

from ooc_chol.apps import spectral
from ooc_chol.apps.spectral import NormalizedCut, SpectralPartition
from tests.apps.spectral.graphs_made import grid, path, star
from tests.inside.spectral import neighbour_graph

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]

#: A check that scikit-learn leaves out for want of an environment variable that SciPy reads when it is imported.
NOT_HERE = {"check_array_api_input"}


def checks_of(estimator, not_for_it):
    """Names of the checks that passed, where all others are those that are not for this estimator."""
    reasons = dict.fromkeys(not_for_it, "X is not square")
    results = estimator_checks.check_estimator(estimator, on_skip=None, expected_failed_checks=reasons)
    passed = {result["check_name"] for result in results if result["status"] == "passed"}
    assert {result["check_name"] for result in results} - passed <= NOT_HERE | not_for_it
    return passed


@pytest.mark.commit
def test_passes_the_checks_of_scikit_learn():
    passed = checks_of(SpectralPartition(3, affinity="nearest_neighbors"), set())
    assert {"check_clustering", "check_estimators_pickle", "check_n_features_in", "check_fit_idempotent"} <= passed


def test_passes_them_with_precomputed_affinities():
    passed = checks_of(SpectralPartition(), {"check_clustering"})
    assert {"check_positive_only_tag_during_fit", "check_estimator_sparse_array", "check_estimators_pickle"} <= passed


@pytest.mark.commit
def test_is_what_the_function_gives():
    matrix = grid(8, 9)
    fitted = SpectralPartition(3, seed=4).fit(matrix)
    assert np.array_equal(fitted.labels_, spectral.partition(matrix, 3, seed=4).labels)
    assert np.array_equal(fitted.fit_predict(matrix), fitted.labels_) and fitted.partition_.cut > 0
    assert is_clusterer(fitted) and fitted.n_features_in_ == 72


def test_takes_graphs_and_weights():
    weights = np.r_[np.full(5, 3.0), np.ones(15)]
    graph = spectral.as_graph(path(20))
    assert SpectralPartition(2).fit(graph).partition_.cut == 1
    assert SpectralPartition(2).fit(path(20), vertex_weights=weights).partition_.sizes.tolist() == [15, 15]


def test_features_are_clustered_by_their_neighbours():
    middles = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    X = np.concatenate([middle + np.random.default_rng(0).normal(size=(40, 2)) for middle in middles])
    fitted = SpectralPartition(3, affinity="nearest_neighbors", n_neighbors=6).fit(X)
    assert [len(np.unique(fitted.labels_[start : start + 40])) for start in (0, 40, 80)] == [1, 1, 1]
    assert len(np.unique(fitted.labels_)) == 3 and fitted.n_features_in_ == 2


def test_neighbours_are_the_nearest_whatever_is_at_the_same_place():
    X = np.array([[0.0], [0.0], [0.0], [1.0], [3.0]])
    joined = neighbour_graph(X, 1).toarray()
    assert np.array_equal(joined, joined.T) and not joined.diagonal().any()
    assert joined[:3, :3].sum() >= 4 and joined[3].sum() >= 1 and joined[4].tolist() == [0, 0, 0, 1, 0]
    assert neighbour_graph(X, 99).toarray().tolist() == (2 * (1 - np.eye(5))).tolist()


@pytest.mark.parametrize("power", [-1060, -700, 700, 1020])
def test_features_may_be_in_any_unit(power):
    X = np.round(np.random.default_rng(0).random((9, 2)) * 2**10)
    assert abs(neighbour_graph(np.ldexp(X, power - 10), 2) - neighbour_graph(X, 2)).max() == 0


@pytest.mark.parametrize(
    ("options", "X", "text"),
    [
        ({"affinity": "rbf"}, np.eye(3), "affinity is 'rbf'; give one of 'precomputed', 'nearest_neighbors'"),
        ({"affinity": "nearest_neighbors", "n_neighbors": 0}, np.eye(3), "n_neighbors is 0; give 1 or more"),
        ({"n_parts": 4}, np.eye(3), "n_parts is 4, but .* has 3 vertices"),
        ({}, -np.ones((3, 3)), "Negative values in data passed to SpectralPartition"),
        ({}, np.ones((3, 2)), "it is 3 x 2; the matrix of a graph has a row and a column for each vertex"),
    ],
)
def test_bad_input(options, X, text):
    with pytest.raises(ValueError, match=text):
        SpectralPartition(**options).fit(X)


def test_parameters_clone_pickle_and_repr():
    fitted = SpectralPartition(2, target_sizes=(0.25, 0.75)).fit(star(8))
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params() and not hasattr(fresh, "labels_")
    assert repr(fresh) == "SpectralPartition(target_sizes=(0.25, 0.75))"
    assert fresh.set_params(n_parts=3, target_sizes=None).n_parts == 3
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).labels_, fitted.labels_)
    with pytest.raises(ValueError, match="Invalid parameter 'n_clusters'"):
        fresh.set_params(n_clusters=3)


def two_discs():
    """A dark image with two bright discs, on a little noise."""
    rows, columns = np.mgrid[:24, :40]
    inside = [(rows - 12) ** 2 + (columns - middle) ** 2 < 49 for middle in (10, 29)]
    image = 40 + 150 * (inside[0] | inside[1]) + np.random.default_rng(0).normal(0, 4, inside[0].shape)
    return image, inside


def test_normalized_cut_is_what_the_function_gives():
    image, inside = two_discs()
    given = {"radius": 3, "sigma_i": 30, "max_ncut": 0.01}
    fitted = NormalizedCut(**given).fit(image)
    assert np.array_equal(fitted.labels_, spectral.normalized_cut(image, **given).labels)
    assert fitted.segmentation_.n_segments == 3
    for disc in inside:
        assert len(np.unique(fitted.labels_[disc])) == 1 and not np.isin(fitted.labels_[~disc], fitted.labels_[disc][0]).any()
    masked = NormalizedCut(**given).fit(image, mask=~inside[0])
    assert np.array_equal(masked.labels_ < 0, inside[0])


def test_normalized_cut_clone_pickle_and_repr():
    fitted = NormalizedCut(sigma_i=30, radius=2).fit(two_discs()[0][:8, :8])
    fresh = clone(fitted)
    assert repr(fresh) == "NormalizedCut(radius=2, sigma_i=30)" and not hasattr(fresh, "labels_")
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).labels_, fitted.labels_)
    assert fresh.set_params(max_ncut=0.5).get_params()["max_ncut"] == 0.5


@pytest.mark.usefixtures("processes")
def test_works_without_scikit_learn():
    script = """
import sys
sys.modules["sklearn"] = None
import scipy.sparse
from ooc_chol.apps.spectral import NormalizedCut, SpectralPartition
path = scipy.sparse.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(10, 10))
estimator = SpectralPartition(3, target_sizes=[0.5, 0.3, 0.2])
print(estimator, estimator.fit_predict(path).tolist(), estimator.get_params()["n_parts"])
estimator.set_params(n_parts=2, target_sizes=None).fit(path)
print(estimator, estimator.partition_.cut)
try:
    estimator.set_params(n_clusters=3)
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second, third = done.stdout.splitlines()
    assert first.startswith("SpectralPartition(n_parts=3, target_sizes=[0.5, 0.3, 0.2]) [") and first.endswith("] 3")
    assert second == "SpectralPartition() 1.0"
    assert third.startswith("Invalid parameter 'n_clusters' for estimator SpectralPartition(). Valid parameters are: ['affinity'")
