"""What is drawn: the artists' data, labels and units, and the command that draws them."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy.stats import beta, norm

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    FigureWords,
    MapLabels,
    Matern,
    empirical_variogram,
    make_observations,
    model_variogram,
    profile_figure,
    residuals_figure,
    save_figure,
    variogram_envelope,
    variogram_figure,
)
from tests.inside.cli import main
from tests.inside.geostat import profile_interval

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.0, 0.2, 0.5, 0.1)


def example(n=60):
    rng = np.random.default_rng(0)
    sites = rng.uniform(size=(n, 2))
    return make_observations(sites, np.sin(6 * sites[:, 0]) + 0.3 * rng.normal(size=n))


def by_label(axis, start):
    """The one line whose label starts with ``start``."""
    (line,) = [line for line in axis.get_lines() if line.get_label().startswith(start)]
    return line


def legend(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


# variogram


def test_variogram_is_drawn_with_model_envelope_and_pairs():
    observations = example()
    variogram = empirical_variogram(observations)
    envelope = variogram_envelope(observations, MODEL, variogram, simulations=19)
    figure = variogram_figure(variogram, FigureWords("soil", "km", "zinc", "ppm"), model=MODEL, envelope=envelope)
    axis, bars = figure.axes
    points = by_label(axis, "Matheron, 60 sites")
    assert np.array_equal(points.get_xydata(), np.column_stack([variogram.distance, variogram.semivariance]))
    line = by_label(axis, "Matérn, smoothness 0.5, range 0.2 km")
    np.testing.assert_allclose(line.get_ydata(), model_variogram(MODEL, line.get_xdata()))
    assert line.get_ydata()[0] == pytest.approx(MODEL.nugget, rel=0.1) and line.get_xdata()[-1] == variogram.edges[-1]
    assert np.all(by_label(axis, "sill").get_ydata() == np.float64(1.1))
    (band,) = axis.collections
    corners = band.get_paths()[0].vertices
    for edge in (envelope.lower, envelope.upper):
        assert {tuple(row) for row in np.column_stack([variogram.distance, edge])} <= {tuple(row) for row in corners}
    assert "95 % of 19 simulations, at each distance" in legend(axis)
    assert [bar.get_height() for bar in bars.patches] == variogram.pairs.tolist()
    assert (axis.get_ylabel(), bars.get_xlabel(), bars.get_ylabel()) == ("semivariance of zinc (ppm²)", "distance (km)", "pairs")
    assert axis.get_title() == "soil" and axis.get_ylim()[0] == 0
    # blue and vermilion of Okabe and Ito: told apart by everybody
    assert to_hex(line.get_color()).upper() == "#0072B2" and to_hex(points.get_color()).upper() == "#D55E00"


def test_variogram_alone_names_no_unit_that_it_does_not_know():
    figure = variogram_figure(empirical_variogram(example(), estimator="cressie"), FigureWords("soil"))
    axis, bars = figure.axes
    assert legend(axis) == ["Cressie and Hawkins, 60 sites"] and not axis.collections
    assert (axis.get_ylabel(), bars.get_xlabel()) == ("semivariance of the values", "distance")


def test_square_of_a_compound_unit_has_parentheses():
    axis = variogram_figure(empirical_variogram(example()), FigureWords("soil", "km", "zinc", "mg/kg")).axes[0]
    assert axis.get_ylabel() == "semivariance of zinc ((mg/kg)²)"


# profile


def test_profile_is_drawn_relative_to_its_largest():
    x = np.linspace(1.0, 3.0, 41)
    loglik = -100 - 8 * (x - 2.1) ** 2
    figure = profile_figure(x, loglik, FigureWords("range"), name="range (km)")
    (axis,) = figure.axes
    line = by_label(axis, "profile")
    np.testing.assert_allclose(line.get_ydata(), loglik + 100, atol=1e-12)
    assert by_label(axis, "largest: -100 at 2.1").get_xydata().tolist() == [[x[22], 0.0]]
    assert axis.get_xlabel() == "range (km)" and axis.get_xscale() == "log"
    # chi-square of one degree of freedom: 3.841 at 0.95
    assert by_label(axis, "-1.92").get_ydata()[0] == pytest.approx(-3.841459 / 2, abs=1e-6)
    half = np.sqrt(3.841459 / 2 / 8)
    low, high = profile_interval(x, loglik + 100, -3.841459 / 2)
    assert low == pytest.approx(2.1 - half, abs=2e-3) and high == pytest.approx(2.1 + half, abs=2e-3)
    assert f"95 % interval: {low:.4g} to {high:.4g}" in legend(axis)


def test_open_profiles_end_at_the_edge():
    x = np.array([-1.0, 0.0, 1.0, 2.0])
    assert profile_interval(x, np.array([-9.0, -0.5, 0.0, -0.1]), -2.0) == (pytest.approx(-1 + 7 / 8.5), 2.0)
    assert profile_interval(x, np.array([-np.inf, -0.5, 0.0, -4.0]), -2.0) == (0.0, 1.5)
    axis = profile_figure(x, [-np.inf, -0.5, 0.0, -4.0], FigureWords("t"), name="x").axes[0]
    assert axis.get_xscale() == "linear" and len(by_label(axis, "profile").get_xdata()) == 3


@pytest.mark.parametrize(
    ("x", "y"),
    [([1, 2], [0, 0]), ([1, 3, 2], [0, 0, 0]), ([1, 2, 3], [0, 0]), ([1, 2, 3], [np.nan, 0, 0]), ([1, 2, 3], [-np.inf] * 3)],
)
def test_what_is_no_profile_is_refused(x, y):
    with pytest.raises(ValueError, match="a profile needs"):
        profile_figure(x, y, FigureWords("t"), name="x")


# residuals


def test_residuals_are_drawn_three_ways():
    rng = np.random.default_rng(0)
    residuals, positions = rng.normal(size=200), rng.uniform(size=(200, 2))
    residuals[7] = 4.5
    figure = residuals_figure(residuals, positions, MapLabels("zinc", "zinc (ppm)", "east (km)", "north (km)", 1.5))
    histogram, quantiles, place, bar = figure.axes
    assert sum(patch.get_height() * patch.get_width() for patch in histogram.patches) == pytest.approx(1.0)
    curve = by_label(histogram, "standard normal")
    np.testing.assert_allclose(curve.get_ydata(), norm.pdf(curve.get_xdata()), rtol=1e-12)
    drawn = by_label(quantiles, "residuals")
    assert np.array_equal(drawn.get_ydata(), np.sort(residuals))
    np.testing.assert_allclose(drawn.get_xdata(), norm.ppf((np.arange(200) + 0.5) / 200), rtol=1e-9)
    corners = quantiles.collections[0].get_paths()[0].vertices
    assert corners[:, 1].min() == pytest.approx(norm.ppf(beta(1, 200).ppf(0.025)), rel=1e-9)
    (points,) = place.collections
    order = np.lexsort(points.get_offsets().T)
    assert np.array_equal(points.get_offsets()[order], positions[np.lexsort(positions.T)])
    assert np.array_equal(points.get_array()[order], residuals[np.lexsort(positions.T)])
    assert points.get_clim() == (-3.0, 3.0) and points.get_cmap().name == "PuOr"
    assert place.get_title() == f"{np.sum(np.abs(residuals) > 3)} beyond 3 standard errors" and place.get_aspect() == 1.5
    assert (place.get_xlabel(), place.get_ylabel()) == ("east (km)", "north (km)")
    assert bar.get_ylabel() == "standardised residual"


def test_residuals_on_a_line_have_no_map():
    figure = residuals_figure(np.linspace(-2, 2, 30), np.zeros((30, 1)), MapLabels("t", "v", "x", ""))
    assert len(figure.axes) == 2


def test_unknown_formats_are_named(tmp_path):
    figure = variogram_figure(empirical_variogram(example()), FigureWords("soil"))
    with pytest.raises(ValueError, match=r"out\.doc: pictures are written as .*\.png.*not as \.doc"):
        save_figure(figure, tmp_path / "out.doc")


# the command


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots")
    sites, heights = geostat.jacksboro().sample(120)
    rows = [f"{x},{y},{z}" for (x, y), z in zip(sites, heights, strict=True)]
    (folder / "data.csv").write_text("\n".join(["east,north,height", *rows]) + "\n")
    words = ["--x", "east", "--y", "north", "--value", "height", "--smoothness", "0.5"]
    assert main(["geostat", "fit", str(folder / "data.csv"), *words, "--output", str(folder / "model.json")]) == 0
    return folder


def plot(folder, what, *words):
    output = folder / f"{what}.png"
    default = [] if "--output" in words else ["--output", str(output)]
    return main(["geostat", "plot", what, str(folder / "model.json"), *words, *default]), output


def test_the_command_draws_each(fitted, capsys):
    for what, words in (
        ("variogram", ["--simulations", "19", "--azimuth", "30", "--max-sites", "100"]),
        ("map", []),
        ("residuals", []),
    ):
        status, output = plot(fitted, what, *words)
        told = capsys.readouterr()
        assert status == 0 and output.read_bytes().startswith(b"\x89PNG") and f"{what} in {output}" in told.out
        if what == "variogram":
            assert "random subsample of 100 of 120 sites (seed 0)" in told.err
            assert "semivariances are inside the envelope of 19 simulations" in told.out
    assert plot(fitted, "variogram", str(fitted / "data.csv"), "--simulations", "0")[0] == 0
    assert "envelope" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--simulations", "3"], "3 simulations say nothing"),
        (["nothing.csv"], "nothing.csv"),
        (["--output", "no/where.png"], "there is no folder"),
        (["--output", "picture.doc"], "pictures are written as"),
    ],
)
def test_mistakes_are_said(fitted, capsys, words, message):
    assert plot(fitted, "variogram", *words)[0] == 2
    assert message in capsys.readouterr().err
