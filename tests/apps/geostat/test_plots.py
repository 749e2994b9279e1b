"""The picture is drawn, without touching the user's own Matplotlib state."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import matplotlib.image
import numpy as np
import pytest

from ooc_chol.apps.geostat import MapData, MapLabels, MissingExtraError, Prediction, Terrain, maps_figure, save_figure
from tests.inside.geostat import TerrainPicture, draw_maps, require_matplotlib, terrain_figure

pytestmark = pytest.mark.host


def colours(image):
    """How many colours the pixels of an image have; sorting whole rows of it would take seconds."""
    return len(np.unique(np.rint(255 * image[..., :3]).astype(int) @ (1 << 16, 1 << 8, 1)))


def example():
    rng = np.random.default_rng(0)
    sites = rng.uniform(size=(40, 2))
    x, y = np.linspace(0, 1, 12), np.linspace(0, 1, 9)
    return MapData(sites, sites.sum(axis=1), x, y, x + y[:, None], 0.1 + 0 * x * y[:, None], sites[:5])


def test_three_maps_are_drawn(tmp_path):
    path = tmp_path / "maps.png"
    draw_maps(path, example(), MapLabels("title", "height (m)", "east (km)", "north (km)"))
    image = matplotlib.image.imread(path)
    assert image.shape[1] > 2 * image.shape[0]
    for third in np.array_split(image, 3, axis=1):
        assert colours(third) > 20


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_heavy_packages_wait_until_they_are_needed_and_drawing_leaves_pyplot_alone(tmp_path):
    program = f"""
import sys, numpy as np
from tests.inside.geostat import commands
from ooc_chol.apps.geostat import MapData, MapLabels
from tests.inside.geostat import draw_maps
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
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[plots\]'"):
        require_matplotlib()


def test_what_the_maps_show():
    data = example()
    figure = maps_figure(data, MapLabels("title", "height (m)", "east (km)", "north (km)"))
    observed, predicted, error = figure.axes
    points, crosses = observed.collections
    assert np.array_equal(crosses.get_offsets(), data.held_out) and "5 held out" in observed.get_title()
    assert np.array_equal(points.get_offsets(), data.sites) and np.array_equal(points.get_array(), data.values)
    assert np.array_equal(predicted.collections[0].get_array().reshape(data.mean.shape), data.mean)
    assert np.array_equal(error.collections[0].get_array().reshape(data.mean.shape), data.standard_error)
    # what is compared shares its colours
    assert (
        points.get_clim()
        == predicted.collections[0].get_clim()
        == (
            min(data.values.min(), data.mean.min()),
            max(data.values.max(), data.mean.max()),
        )
    )
    assert {axis.get_xlabel() for axis in (observed, predicted, error)} == {"east (km)"} and observed.get_ylabel() == "north (km)"
    bars = [axis.child_axes[0] for axis in figure.axes]
    assert [bar.get_ylabel() for bar in bars] == ["height (m)", "height (m)", "standard error, height (m)"]
    assert error.get_title() == "standard error of the field"


def test_a_colour_bar_is_beside_its_panel_and_as_high():
    for aspect in (0.3, 1.0, 2.0):
        figure = maps_figure(example(), MapLabels("t", "v", "x", "y", aspect))
        figure.draw_without_rendering()
        panels = [(axis.get_window_extent(), axis.child_axes[0].get_window_extent()) for axis in figure.axes]
        for panel, bar in panels:
            assert (bar.y0, bar.y1) == pytest.approx((panel.y0, panel.y1)) and bar.x0 > panel.x1
        for (_, bar), (following, _) in pairwise(panels):
            assert bar.x1 < following.x0


def relief(rows=12, columns=9):
    """A terrain with what is shown of its prediction."""
    x, y = 0.1 * np.arange(columns), -0.1 * np.arange(rows)
    heights = 300.0 + 50 * np.sin(3 * x) + 40 * np.cos(4 * y)[:, None]
    held, prediction = (
        np.array([300.0, 310.0, 400.0]),
        Prediction(np.array([301.0, 305.0, 320.0]), np.full(3, 25.0), "observation"),
    )
    return TerrainPicture(
        terrain=Terrain(heights, x, y),
        sites=np.column_stack([x, y[:columns]]),
        mean=heights + 2.0,
        x=x[::2],
        y=y[::2],
        standard_error=np.full((rows // 2, (columns + 1) // 2), 3.0),
        held_out=held,
        prediction=prediction,
        title="title",
        subtitle="subtitle",
        memory=[("matrix", 8_000_000), ("used", 1_000_000)],
        budget_bytes=2_000_000,
        factor_bytes=4_000_000,
        memory_text="1 s",
    )


def test_the_picture_of_terrain_shows_truth_prediction_errors_and_memory(tmp_path):
    data = relief()
    figure = terrain_figure(data)
    truth, predicted, error, uncertain, scatter, memory = figure.axes
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert "True terrain: 108 heights" in titles[0] and "Predicted from 9 of them" in titles[1]
    assert "2 m root mean square" in titles[2] and "of the field" in titles[3]
    assert (
        "3 heights held out: 66.7 % in 95 % intervals" in titles[4] and "Out of core: working memory for 50 % of L" in titles[5]
    )
    assert np.array_equal(error.images[0].get_array(), data.mean - data.terrain.heights)
    assert np.array_equal(uncertain.images[0].get_array(), data.standard_error)
    assert truth.get_xlim() == predicted.get_xlim() == error.get_xlim() == uncertain.get_xlim()
    hits, misses = scatter.containers
    assert [len(container[0].get_xdata()) for container in (hits, misses)] == [2, 1]
    assert sorted(bar.get_width() for bar in memory.patches) == [1.0, 8.0] and "2 MB allowed" in memory.get_xlabel()
    save_figure(figure, tmp_path / "terrain.png")
    image = matplotlib.image.imread(tmp_path / "terrain.png")
    assert colours(image) > 500
    whole = terrain_figure(replace(data, budget_bytes=5_000_000))
    assert "In core" in whole.axes[-1].get_title(loc="left")


def test_figures_are_as_high_as_their_maps():
    heights = []
    for aspect in (0.3, 1.0, 2.0):
        figure = maps_figure(example(), MapLabels("t", "v", "x", "y", aspect))
        assert figure.axes[0].get_aspect() == aspect
        heights.append(figure.get_figheight())
    assert heights == [3.0, 5.0, 9.0]
