"""The picture is drawn, without touching the user's own Matplotlib state."""

from __future__ import annotations

import subprocess
import sys

import matplotlib.image
import numpy as np
import pytest

from ooc_chol.apps.geostat.errors import MissingExtraError
from ooc_chol.apps.geostat.pictures.plots import MapData, MapLabels, draw_maps, maps_figure, require_matplotlib

pytestmark = pytest.mark.host


def example(held_out):
    rng = np.random.default_rng(0)
    sites = rng.uniform(size=(40, 2))
    x, y = np.linspace(0, 1, 12), np.linspace(0, 1, 9)
    return MapData(sites, sites.sum(axis=1), x, y, x + y[:, None], 0.1 + 0 * x * y[:, None], sites[:5] if held_out else None)


def test_three_maps_are_drawn(tmp_path):
    path = tmp_path / "maps.png"
    draw_maps(path, example(held_out=True), MapLabels("title", "height (m)", "east (km)", "north (km)"))
    image = matplotlib.image.imread(path)
    assert image.shape[1] > 2 * image.shape[0]
    for third in np.array_split(image[..., :3], 3, axis=1):
        assert len(np.unique(third.reshape(-1, 3), axis=0)) > 20


def test_heavy_packages_wait_until_they_are_needed_and_drawing_leaves_pyplot_alone(tmp_path):
    program = f"""
import sys, numpy as np
import ooc_chol.apps.geostat.cli.commands
from ooc_chol.apps.geostat.pictures.plots import MapData, MapLabels, draw_maps
heavy = ("geopandas", "matplotlib", "pandas", "scipy.optimize", "scipy.spatial", "scipy.stats", "sklearn", "xarray")
assert not [name for name in heavy if name in sys.modules]
axis = np.linspace(0, 1, 4)
data = MapData(np.eye(2), np.arange(2.0), axis, axis, np.eye(4), np.eye(4))
draw_maps({str(tmp_path / "maps.png")!r}, data, MapLabels("t", "v", "x", "y"))
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_maps_say_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ooc_chol\[plots\]'"):
        require_matplotlib()


def test_what_the_maps_show():
    data = example(held_out=True)
    figure = maps_figure(data, MapLabels("title", "height (m)", "east (km)", "north (km)"))
    observed, predicted, error, height_bar, error_bar = figure.axes
    points, crosses = observed.collections
    assert np.array_equal(points.get_offsets(), data.sites) and np.array_equal(points.get_array(), data.values)
    assert np.array_equal(crosses.get_offsets(), data.held_out)
    assert np.array_equal(predicted.collections[0].get_array().reshape(data.mean.shape), data.mean)
    assert np.array_equal(error.collections[0].get_array().reshape(data.mean.shape), data.standard_error)
    # what is compared shares its colours
    assert points.get_clim() == predicted.collections[0].get_clim() == (data.values.min(), data.values.max())
    assert {axis.get_xlabel() for axis in (observed, predicted, error)} == {"east (km)"} and observed.get_ylabel() == "north (km)"
    assert height_bar.get_ylabel() == "height (m)" and error_bar.get_ylabel() == "standard error, height (m)"


def test_figures_are_as_high_as_their_maps():
    heights = []
    for aspect in (0.3, 1.0, 2.0):
        figure = maps_figure(example(held_out=False), MapLabels("t", "v", "x", "y", aspect))
        assert figure.axes[0].get_aspect() == aspect
        heights.append(figure.get_figheight())
    assert heights == [3.0, 5.0, 9.0]
