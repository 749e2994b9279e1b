"""The estimator: what the function gives, in scikit-learn's form, with and without scikit-learn."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps.imputation import ConvolutionalImputer, relative_error
from tests.apps.imputation.tensors_made import N, edges, fourier, graph, tensor

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("one_blas_thread")]

MASK = oc.testing.random_mask((N, 12, 12), 0.8)


def test_is_what_the_function_gives():
    x = tensor()
    fitted = ConvolutionalImputer(graph(), n_lambdas=12, decay=0.4).fit(x, MASK)
    found = oc.impute(x, MASK, fourier(), n_lambdas=12, decay=0.4)
    assert np.array_equal(fitted.transform(), found.tensor) and fitted.tensor_ is fitted.imputed_.tensor
    assert [row.lam for row in fitted.history_] == [row.lam for row in found.history]
    assert np.array_equal(fitted.mask_, MASK) and fitted.fourier_.n_components == N
    assert relative_error(fitted.tensor_, x, ~MASK) < 0.05


def test_gaps_are_nan_where_there_is_no_mask():
    x = tensor()
    gaps = np.where(MASK[:, None, None], x, np.nan)
    filled = ConvolutionalImputer(fourier()).fit_transform(gaps)
    assert np.array_equal(filled, ConvolutionalImputer(fourier()).fit_transform(x, MASK))
    assert np.array_equal(filled[MASK], x[MASK])


def test_what_nothing_observed_tells_of_is_named():
    gaps = tensor()
    gaps[:, 5] = np.nan
    with pytest.warns(oc.errors.ImputationWarning, match="row 5 of every slice"):
        filled = ConvolutionalImputer(fourier(), n_lambdas=3).fit_transform(gaps)
    assert np.abs(filled[:, 5]).max() < 1e-6


def test_fills_another_tensor_of_its_shape():
    fitted = ConvolutionalImputer(fourier(), n_lambdas=6).fit(tensor(), MASK)
    other = np.ones((N, 12, 12), np.float32)
    other[4, 2] = np.nan
    filled = fitted.transform(other)
    assert np.array_equal(filled[4, 2], fitted.tensor_[4, 2]) and (np.delete(filled, 4, axis=0) == 1).all()
    with pytest.raises(ValueError, match="which knows no other vertices"):
        fitted.transform(other[:5])


@pytest.mark.parametrize(
    "other",
    [16777217 * np.ones((N, 12, 12)), np.full((N, 12, 12), 1e39), np.full((N, 12, 12), 7), np.ones((N, 12, 12), np.float32)],
    ids=["digits", "range", "whole", "float32"],
)
def test_what_is_given_is_not_rounded(other):
    filled = ConvolutionalImputer(fourier(), n_lambdas=1, held_out=0).fit(tensor(), MASK).transform(other)
    assert np.array_equal(filled, other) and filled.dtype == (np.float32 if other.dtype == np.float32 else np.float64)


@pytest.mark.parametrize("kind", [complex, object, str])
def test_other_numbers_are_refused(kind):
    fitted = ConvolutionalImputer(fourier(), n_lambdas=1, held_out=0).fit(tensor(), MASK)
    with pytest.raises(TypeError, match=r"X holds .*; give float32 or float64"):
        fitted.transform(tensor().astype(kind))
    with pytest.raises(ValueError, match="a whole number beyond 2"):
        fitted.transform(np.full((N, 12, 12), 2**53 + 1))


def test_goes_on_from_an_earlier_fit():
    x = tensor()
    estimator = ConvolutionalImputer(fourier(), n_lambdas=5, tol=0.0)
    short = estimator.fit(x, MASK).imputed_
    estimator.set_params(n_lambdas=4).fit(x, MASK, start=short)
    assert estimator.history_[0].lam == short.last_lambda
    assert relative_error(estimator.tensor_, x) < relative_error(short.tensor, x)


def test_takes_a_part_of_the_eigenvectors_and_the_other_laplacian(tmp_path):
    edges(tmp_path / "graph.txt")
    fitted = ConvolutionalImputer(str(tmp_path / "graph.txt"), n_components=30, normalized=False, n_lambdas=3).fit(tensor(), MASK)
    assert fitted.fourier_.n_components == 30 and not fitted.fourier_.normalized
    with pytest.raises(ValueError, match=f"n_components is 30, but the GraphFourier that was given has {N}"):
        ConvolutionalImputer(fourier(), n_components=30).fit(tensor(), MASK)


def test_what_the_function_refuses_is_refused():
    x = tensor()
    broken = x.copy()
    broken[np.flatnonzero(MASK)[0], 1, 2] = np.nan
    for options, X, mask, said in (
        ({}, broken, MASK, "nan"),
        ({}, x[:5], MASK[:5], "vertices"),
        ({}, x, np.zeros(N, bool), "nothing is observed"),
        ({"decay": 1.0}, x, MASK, "decay is 1"),
    ):
        with pytest.raises(ValueError, match=said):
            ConvolutionalImputer(fourier(), **options).fit(X, mask)
    with pytest.raises(TypeError, match="complex128"):
        ConvolutionalImputer(fourier()).fit(np.zeros((N, 2, 2), complex), MASK)


def test_parameters_as_scikit_learn_has_them():
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError

    estimator = ConvolutionalImputer(fourier(), decay=0.6)
    assert clone(estimator).get_params()["decay"] == 0.6 and "n_lambdas" in estimator.get_params()
    assert estimator.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(NotFittedError, match="call fit"):
        estimator.transform()
    fitted = pickle.loads(pickle.dumps(ConvolutionalImputer(graph(), n_lambdas=2).fit(tensor(), MASK)))
    assert fitted.transform().shape == (N, 12, 12)


@pytest.mark.usefixtures("processes")
def test_works_without_scikit_learn():
    script = """
import sys
sys.modules["sklearn"] = None
import numpy as np
import ooc_chol as oc
from ooc_chol.apps.imputation import ConvolutionalImputer
ring = np.roll(np.eye(30), 1, axis=1) + np.roll(np.eye(30), -1, axis=1)
estimator = ConvolutionalImputer(ring, n_lambdas=3)
assert estimator.set_params(decay=0.4).get_params()["decay"] == 0.4 and "n_lambdas=3" in repr(estimator)
try:
    estimator.transform()
except ValueError as error:
    assert "call fit" in str(error)
else:
    raise AssertionError
gaps = oc.testing.low_rank_tensor(ring, 5, 4, 1)
gaps[3] = np.nan
assert np.isfinite(estimator.fit_transform(gaps)).all()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
