"""Every door of geostatistics that takes ``Observations`` refuses anything else by its type."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from ooc_chol.apps import geostat

MODEL = geostat.Matern(1.0, 0.2, 0.5)
SITES = np.random.default_rng(0).random((5, 2))
DOORS = [
    name
    for name in sorted(dir(geostat))
    if inspect.isfunction(door := getattr(geostat, name)) and "observations" in inspect.signature(door).parameters
]


def test_there_are_doors():
    """The list holds those that users know."""
    assert {"fit", "predict", "kriging", "infer", "cross_validate", "log_likelihood", "empirical_variogram"} <= set(DOORS)


@pytest.mark.parametrize("given", [(SITES, SITES[:, 0]), SITES, None], ids=lambda given: type(given).__name__)
@pytest.mark.parametrize("name", DOORS)
def test_arrays_in_place_of_observations_are_refused(name, given):
    """The message names what was given and what makes observations, whatever else is given."""
    door = getattr(geostat, name)
    needed = {each.name for each in inspect.signature(door).parameters.values() if each.default is each.empty}
    others = dict.fromkeys(needed, SITES) | {"model": MODEL, "name": "range"}
    with pytest.raises(TypeError, match=f"observations is a {type(given).__name__}; give .*make_observations"):
        result = door(**{each: value for each, value in others.items() if each in needed} | {"observations": given})
        if hasattr(result, "__enter__"):
            result.__enter__()
