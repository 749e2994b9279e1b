"""Anisotropy as people read it: azimuths from north, ellipses, semivariograms by direction, pictures, other packages."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    AxisRanges,
    GeometricAnisotropy,
    Matern,
    Nested,
    PowerExponential,
    convert_parameters,
    cross_covariance,
    directional_range,
    make_observations,
    model_content,
    model_from_content,
    model_variogram,
)
from tests.apps.geostat.few_tiles import fit, infer
from tests.apps.geostat.geostat_tolerances import OTHER_PACKAGE, TABLE
from tests.apps.geostat.shell import shell, shell_told
from tests.inside.geostat import angle_of, azimuth_of, read_values, typed_values

pytestmark = pytest.mark.usefixtures("one_blas_thread")

#: The longer axis points to azimuth 30: from the first axis, that is 60 degrees counter-clockwise.
MODEL = GeometricAnisotropy.by_azimuth(Matern(1.7, 2.0, 0.8, 0.1), azimuth=30.0, ratio=0.25)


def along(azimuth, h):
    turn = np.radians(azimuth)
    return np.column_stack([h * np.sin(turn), h * np.cos(turn)])


def test_azimuths_are_clockwise_from_the_second_axis():
    assert MODEL.angle == pytest.approx(math.pi / 3) and MODEL.azimuth == pytest.approx(30.0)
    for azimuth in (0.0, 27.0, 90.0, 179.0):
        assert azimuth_of(angle_of(azimuth)) == pytest.approx(azimuth)
        assert azimuth_of(angle_of(azimuth) - math.pi) == pytest.approx(azimuth)
    assert azimuth_of(math.nextafter(math.pi / 2, 4.0)) < 180.0
    origin, h = np.zeros((1, 2)), np.array([0.5, 1.0, 4.0])
    for azimuth, length in ((30.0, 2.0), (120.0, 0.5), (210.0, 2.0)):
        expected = Matern(1.7, length, 0.8).covariance(h)
        np.testing.assert_allclose(cross_covariance(MODEL, origin, along(azimuth, h))[0], expected, atol=2 * TABLE)
        np.testing.assert_allclose(model_variogram(MODEL, h, azimuth=azimuth), 1.8 - expected, atol=2 * TABLE)
    # the other axis as the main one
    same = GeometricAnisotropy.by_azimuth(Matern(1.7, 0.5, 0.8, 0.1), azimuth=120.0, ratio=4.0)
    assert (same.azimuth, same.range_major, same.range_minor) == (pytest.approx(30.0), 2.0, 0.5)
    assert (MODEL.range_major, MODEL.range_minor) == (2.0, 0.5)


def test_effective_ranges_by_direction():
    isotropic = MODEL.base.effective_range
    assert directional_range(MODEL, 30.0) == pytest.approx(isotropic, rel=1e-9)
    assert directional_range(MODEL, -60.0) == pytest.approx(isotropic / 4, rel=1e-9)
    between = math.hypot(math.cos(math.pi / 4), math.sin(math.pi / 4) / 0.25)
    assert directional_range(MODEL, 75.0) == pytest.approx(isotropic / between, rel=1e-9)
    assert directional_range(AxisRanges(Matern(1.0, 1.0, 0.5), (1.0, 3.0)), 0.0) == pytest.approx(3 * math.log(20), rel=1e-9)
    assert directional_range(Matern(2.0, 0.3, 1.5), 77.0) == pytest.approx(Matern(2.0, 0.3, 1.5).effective_range, rel=1e-9)
    nested = Nested((MODEL.with_values(nugget=0.0), PowerExponential(0.3, 1.0, 1.0)))
    for azimuth in (30.0, 120.0):
        h = directional_range(nested, azimuth)
        assert geostat.directional_covariance(nested, [h], azimuth)[0] == pytest.approx(0.05 * 2.0, rel=1e-9)


def test_files_say_the_unit_and_older_ones_are_read():
    content = json.loads(json.dumps(model_content(MODEL)))
    assert content["angle_radians"] == MODEL.angle and "angle" not in content
    assert content["azimuth"] == pytest.approx(30.0) and content["range_minor"] == 0.5
    assert model_from_content(content) == MODEL
    older = {name: value for name, value in content.items() if name not in ("angle_radians", "azimuth")} | {"angle": MODEL.angle}
    assert model_from_content(older) == MODEL


def test_what_is_read_and_typed():
    assert read_values({"range": 2.0, "angle": math.pi / 3, "angle_2": 0.0}) == {
        "range": 2.0,
        "azimuth": pytest.approx(30.0),
        "azimuth_2": 90.0,
    }
    typed = typed_values({"azimuth": 30.0, "azimuth_2": None, "range": 3.0, "range_angle_x": 1.0})
    assert typed == {"angle": pytest.approx(math.pi / 3), "angle_2": None, "range": 3.0, "range_angle_x": 1.0}
    with pytest.raises(ValueError, match="azimuth=27"):
        typed_values({"angle": 1.0})


def field(n=200, seed=3):
    sites = np.random.default_rng(seed).uniform(size=(n, 2)) * 10
    values = geostat.simulate(MODEL, sites, seed=seed, target="observation")[0]
    return make_observations(sites, values)


def test_results_are_read_in_degrees():
    observations = field()
    result = fit(observations, covariance=MODEL, fixed=("smoothness",))
    found = infer(observations, result.model, estimated=result.estimated)
    for text in (str(result), str(found), found.text({})):
        row = next(line for line in text.splitlines() if line.strip().startswith("azimuth"))
        assert float(row.split()[1]) == pytest.approx(result.model.azimuth, rel=1e-5) and row.endswith("degrees")
        assert "angle" not in text
    row = next(line for line in str(found).splitlines() if line.strip().startswith("azimuth")).split()
    one = found.parameters["angle"]
    assert float(row[3].rstrip(",")) == pytest.approx(math.degrees(one.standard_error), rel=0.05)
    assert float(row[4]) < result.model.azimuth < float(row[6])
    assert float(row[6]) - float(row[4]) == pytest.approx(math.degrees(one.upper - one.lower), rel=1e-4)
    assert "angle_radians" in found.to_dict()["estimates"]
    # lengths across, by the delta method: in logarithms the range across is range + ratio
    across, names = found.ellipse["range_across"], list(found.names)
    deviations = {name: found.parameters[name].standard_error / found.parameters[name].value for name in ("range", "ratio")}
    correlation = found.correlation[names.index("range"), names.index("ratio")]
    squares = [deviations["range"] ** 2, deviations["ratio"] ** 2, 2 * correlation * math.prod(deviations.values())]
    assert across.value == pytest.approx(result.model.range_minor)
    assert across.standard_error / across.value == pytest.approx(math.sqrt(sum(squares)), rel=1e-6)
    assert found.ellipse["effective_range_across"].value == pytest.approx(
        directional_range(result.model, result.model.azimuth + 90)
    )


def test_semivariograms_lie_along_the_axes():
    observations = field(300)
    first, second = geostat.variograms_along_axes(observations, MODEL, longest=3.0)
    assert (first.direction.azimuth, second.direction.azimuth) == (pytest.approx(30.0), pytest.approx(120.0))
    assert np.mean(first.semivariance[:5]) < 0.7 * np.mean(second.semivariance[:5])
    figure = geostat.anisotropy_figure(
        geostat.variogram_map(observations, longest=3.0), (first, second), MODEL, geostat.FigureWords("title", "km", "v", "")
    )
    ellipse = figure.axes[0].get_lines()[1].get_xydata()
    longest = ellipse[np.argmax(np.hypot(*ellipse.T))]
    assert math.degrees(math.atan2(*longest)) % 180 == pytest.approx(30.0, abs=1.0)
    assert np.hypot(*ellipse.T).max() / np.hypot(*ellipse.T).min() == pytest.approx(4.0, rel=1e-3)


#: The squared distance in units of the range, of a step, from the documentation of each package.
STEP = np.array([0.7, -0.3])


def geor_distance(p):
    """``coords.aniso`` of geoR: turned by psiA, then the second coordinate shrunk by psiR."""
    cosine, sine = math.cos(p["psiA"]), math.sin(p["psiA"])
    turned = STEP @ np.array([[cosine, sine], [-sine, cosine]])
    return np.linalg.norm(turned / [1.0, p["psiR"]]) / p["phi"]


def gpgp_distance(p):
    return np.linalg.norm(np.array([[p["L11"], 0.0], [p["L21"], p["L22"]]]) @ STEP)


@pytest.mark.parametrize("azimuth", [0.0, 27.0, 90.0, 150.0])
def test_conversions_have_the_same_distances(azimuth):
    model = GeometricAnisotropy.by_azimuth(MODEL.base, azimuth, 0.25)
    expected = cross_covariance(model, np.zeros((1, 2)), STEP[None])[0, 0]
    for package, distance in (("geoR", geor_distance), ("gpgp", gpgp_distance)):
        for same in (model, GeometricAnisotropy.by_azimuth(Matern(1.7, 0.5, 0.8, 0.1), azimuth + 90.0, 4.0)):
            found = convert_parameters(same, package)
            assert Matern(1.7, 1.0, 0.8).covariance(distance(found.parameters)) == pytest.approx(expected, rel=OTHER_PACKAGE)
            assert all(repr(value) in found.code for value in found.parameters.values())
    assert convert_parameters(model, "geoR").parameters["psiR"] == 4.0
    with pytest.raises(ValueError, match="sklearn has no geometric anisotropy"):
        convert_parameters(model, "sklearn")
    with pytest.raises(ValueError, match="anisotropic PowerExponential"):
        convert_parameters(GeometricAnisotropy(PowerExponential(1.0, 1.0, 1.0), 0.0, 0.5), "gpgp")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: model_variogram(MODEL, [1.0]), "for each direction"),
        (lambda: model_variogram(geostat.GreatCircle(Matern(1.0, 1.0, 0.5)), [1.0], azimuth=3.0), "no directions there"),
        (lambda: directional_range(MODEL, math.inf), "azimuth is inf"),
    ],
)
def test_what_is_wrong_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# the shell


def test_from_fit_to_pictures(tmp_path, capsys):
    observations, data, model = field(100), tmp_path / "data.csv", tmp_path / "model.json"
    np.savetxt(data, np.column_stack([observations.coordinates, observations.values]), delimiter=",", header="x,y,v", comments="")
    words = ("fit", data, "--x", "x", "--y", "y", "--value", "v", "--covariance", "anisotropic", "--smoothness", "0.8")
    status, out, _ = shell_told(capsys, *words, "--start", "azimuth=20", "--standard-errors", "--output", model)
    content = json.loads(model.read_text())["fit"]["model"]
    assert status == 0 and f"azimuth      {content['azimuth']:.6g} degrees" in out
    assert f"along azimuth {content['azimuth']:.4g} (clockwise from north)" in out and "angle" not in out
    assert content["azimuth"] == pytest.approx(30.0, abs=15.0)
    status, out, _ = shell_told(capsys, *words, "--fix", "azimuth=45", "--dry-run")
    (searched,) = (line for line in out.splitlines() if "search by fisher" in line)
    assert status == 0 and "azimuth" not in searched
    status, _, err = shell_told(capsys, *words, "--start", "angle=0.3")
    assert status == 2 and "azimuth=27" in err
    status, _, err = shell_told(capsys, "plot", "variogram", model, "--output", tmp_path / "v.png")
    assert status == 2 and "--azimuth DEGREES" in err and "plot anisotropy" in err
    for name, more in (("variogram", ("--azimuth", "30", "--simulations", "0")), ("anisotropy", ())):
        status, out, err = shell_told(capsys, "plot", name, model, "--output", tmp_path / f"{name}.png", *more)
        assert status == 0, err
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    fitted = model_from_content(content)
    ranges = [directional_range(fitted, fitted.azimuth + turn) for turn in (0.0, 90.0)]
    # of the axes themselves, which lie between whole degrees
    assert f"{ranges[0]:.6g} at azimuth {fitted.azimuth:.4g}, {ranges[1]:.6g} at azimuth" in out
    assert fitted.azimuth % 1.0 != 0.0
    status, out, err = shell_told(capsys, "convert", model)
    assert status == 0 and "psiA" in out and "L21" in out and "scikit-learn" not in out and "gstools, geoR, gpgp" in err
    status, _, err = shell_told(capsys, "convert", model, "--convert-to", "fields")
    assert status == 2 and "no geometric anisotropy" in err


def test_pictures_of_directions_need_a_model_that_has_some(tmp_path, capsys):
    observations, data, model = field(60), tmp_path / "data.csv", tmp_path / "model.json"
    np.savetxt(data, np.column_stack([observations.coordinates, observations.values]), delimiter=",", header="x,y,v", comments="")
    assert shell("fit", data, "--x", "x", "--y", "y", "--value", "v", "--smoothness", "0.5", "--output", model) == 0
    status, _, err = shell_told(capsys, "plot", "anisotropy", model, "--output", tmp_path / "a.png")
    assert status == 2 and "--covariance anisotropic" in err


def test_meuse_lies_along_its_river(data_dir):
    """155 samples of zinc from a flood plain of the Meuse, which runs there from south-south-west to north-north-east."""
    table = geostat.read_table(data_dir / "meuse.csv", ("x", "y", "zinc"))
    observations = make_observations(table.stack(("x", "y")), np.log(table.columns["zinc"]))
    start = geostat.starting_model("anisotropic", observations, values={"smoothness": 0.5})
    result = fit(observations, covariance=start, fixed=("smoothness",))
    assert result.loglik == pytest.approx(-92.23, abs=0.005) and result.model.azimuth == pytest.approx(27.0, abs=0.5)
    assert fit(observations, smoothness="best").loglik == pytest.approx(-97.38, abs=0.01)
