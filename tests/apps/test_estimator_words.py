"""Estimators have the words of the functions beside them, and answer those of other packages with them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import imputation, spectral

pytestmark = pytest.mark.host


def made(name):
    """The class of an estimator, and arguments that it needs."""
    if name == "MaternGP":
        from ooc_chol.apps import geostat

        return geostat.MaternGP, ()
    if name == "ConvolutionalImputer":
        return imputation.ConvolutionalImputer, (np.eye(3),)
    return getattr(spectral, name), ()


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(
    ("name", "word", "told"),
    [
        ("SpectralPartition", "n_clusters", "it is called n_parts"),
        ("SpectralPartition", "random_state", "it is called seed"),
        ("SpectralPartition", "n_components", "called vectors"),
        ("SpectralPartition", "vertex_weights", "give them to fit"),
        ("SpectralPartition", "ballance", "did you mean balance?"),
        ("NormalizedCut", "n_clusters", "it is called n_segments"),
        ("NormalizedCut", "mask", "give it to fit"),
        ("NormalizedCut", "assign_labels", "leave it out"),
        ("ConvolutionalImputer", "max_rank", "ranks follow from lambda"),
        ("ConvolutionalImputer", "missing_values", "gaps are NaN"),
        ("MaternGP", "kernel", "it is called covariance"),
        ("MaternGP", "length_scale", r"range is length_scale / sqrt\(2 \* smoothness\)"),
        ("MaternGP", "random_state", "sample_y"),
        ("MaternGP", "smothness", "did you mean smoothness?"),
    ],
)
def test_words_of_others_are_answered_by_the_class(name, word, told):
    estimator, given = made(name)
    with pytest.raises(TypeError, match=f"^{name} has no argument {word}.*{told}"):
        estimator(*given, **{word: 3})


@pytest.mark.parametrize(
    ("name", "function", "own"),
    [
        ("SpectralPartition", spectral.partition, {"affinity", "n_neighbors"}),
        ("NormalizedCut", spectral.normalized_cut, set()),
        ("ConvolutionalImputer", oc.impute, {"graph", "n_components", "normalized", "held_out"}),
    ],
)
def test_parameters_are_those_of_the_function(name, function, own):
    defaults = {each.name: each.default for each in inspect.signature(function).parameters.values()}
    parameters = {
        each.name: each.default for each in inspect.signature(made(name)[0]).parameters.values() if each.name not in own
    }
    assert set(parameters) <= set(defaults)
    same = {
        each for each, default in parameters.items() if default == defaults[each] or defaults[each] is inspect.Parameter.empty
    }
    assert same == set(parameters)
