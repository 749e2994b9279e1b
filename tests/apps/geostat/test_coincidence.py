"""Places that coincide: by every way into a covariance matrix, in every system of coordinates, named by the caller's rows."""

from __future__ import annotations

import decimal
import json
import math
import pickle

import numpy as np
import pytest
import scipy.io

import ooc_chol as oc
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import (
    AxisRanges,
    BivariateMatern,
    GeometricAnisotropy,
    GneitingMatern,
    GreatCircle,
    Matern,
    NonstationaryMatern,
    PowerExponential,
    SeparableSpaceTime,
    chordal_coordinates,
    make_observations,
)
from tests.apps.geostat.geostat_tolerances import LEAST_PIVOT, TWO_ROUTES
from tests.apps.geostat.shell import refused, shell
from tests.inside.geostat import count_places, least_pivot, singular_pairs

pytestmark = pytest.mark.usefixtures("one_blas_thread")

MODEL = Matern(1.0, 0.5, 1.5)
N = 40


def places(n=N, d=2, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, d))


def lonlat(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(-180, 180, n), rng.uniform(-60, 60, n)])


def with_pair(sites, one, other, rows=(7, 31)):
    """Sites of which two rows are these."""
    sites = sites.copy()
    sites[list(rows)] = one, other
    return sites


def chords(sites):
    return chordal_coordinates(sites[:, 0], sites[:, 1])


def values(sites, seed=1):
    return np.random.default_rng(seed).normal(size=len(sites))


PAIR = with_pair(places(), [0.3, 0.6], [0.3, 0.6])


def given(what):
    """Observations of which rows 7 and 31 are at one place, or nearly."""
    sites = {
        "exact": PAIR,
        "near": with_pair(places(), [0.3, 0.6], [0.3 + 1e-9, 0.6]),
        "far from the origin": with_pair(5e6 + places() * 100, [5e6 + 30, 5e6], [np.nextafter(5e6 + 30, 6e6), 5e6]) / 100,
        "chords": chords(with_pair(lonlat(), [180.0, 45.0], [-180.0, 45.0])) / 6371.0,
    }[what]
    return make_observations(sites, values(sites))


NEW = {2: [[0.5, 0.5], [0.2, 0.9]], 3: [[0.5, 0.5, 0.5]]}
TWO = Matern(0.5, 0.5, 1.5) + Matern(0.5, 0.1, 1.5)


def new(o):
    return np.array(NEW[o.coordinates.shape[1]])


def kriged(o):
    with geostat.kriging(o, MODEL) as found:
        return found.predict(new(o))


def envelope(o):
    return geostat.variogram_envelope(o, MODEL, geostat.empirical_variogram(o), simulations=19)


#: Ways into a covariance matrix of observations, none of them with a nugget.
WAYS = {
    "log_likelihood": lambda o: geostat.log_likelihood(o, MODEL),
    "restricted": lambda o: geostat.log_likelihood(o, MODEL, reml=True),
    "profile_log_likelihood": lambda o: geostat.profile_log_likelihood(o, MODEL),
    "gradient": lambda o: geostat.log_likelihood_gradient(o, MODEL),
    "profile gradient": lambda o: geostat.profile_log_likelihood_gradient(o, MODEL),
    "vecchia": lambda o: geostat.vecchia_log_likelihood(o, MODEL, neighbours=5),
    "predict": lambda o: geostat.predict(o, MODEL, new(o)),
    "kriging": kriged,
    "known mean": lambda o: geostat.predict(o, MODEL, new(o), coefficients=[0.0]),
    "component": lambda o: geostat.predict_component(o, TWO, 1, new(o)),
    "local": lambda o: geostat.local_kriging(o, MODEL, coefficients=[0.0]).predict(new(o)),
    "local, mean estimated": lambda o: geostat.local_kriging(o, MODEL, neighbours=5).predict(new(o)),
    "simulate": lambda o: geostat.simulate(MODEL, o.coordinates, jitter=0.0),
    "simulate_conditional": lambda o: geostat.simulate_conditional(o, MODEL, new(o)),
    "leave_one_out": lambda o: geostat.leave_one_out(o, MODEL),
    "cross_validate": lambda o: geostat.cross_validate(o, MODEL, folds=4),
    "residuals": lambda o: geostat.standardised_residuals(o, MODEL),
    "efficiency": lambda o: geostat.prediction_efficiency(o, new(o), truth=MODEL, other=Matern(1.0, 0.4, 0.5)),
    "envelope": envelope,
    "infer": lambda o: geostat.infer(o, MODEL, estimated=("range", "variance")),
    "kept factor": lambda o: geostat.predict(o, MODEL, new(o), settings=geostat.FactorSettings(kept=geostat.KeptFactor())),
    "mixed precision": lambda o: geostat.log_likelihood(o, MODEL, settings=geostat.FactorSettings(precision_threshold=1e-6)),
    "tiles": lambda o: geostat.log_likelihood(o, MODEL, settings=geostat.FactorSettings(tile_size=16)),
    "tiny nugget": lambda o: geostat.log_likelihood(o, Matern(1.0, 0.5, 1.5, 1e-17)),
    "tiny nugget beside a large variance": lambda o: geostat.predict(o, Matern(1e12, 0.5, 1.5, 1e-6), new(o)),
    "estimator": lambda o: geostat.MaternGP(range=0.5, variance=1.0, smoothness=1.5, nugget="zero").fit(o.coordinates, o.values),
}

FITS = {
    "fit": lambda o: geostat.fit(o, smoothness=1.5, nugget="zero"),
    "fit by Vecchia": lambda o: geostat.fit(o, smoothness=1.5, nugget="zero", method="vecchia"),
    "fit of a family": lambda o: geostat.fit(o, covariance=PowerExponential(1.0, 0.3, 1.0), nugget=0.0),
    "profile_likelihood": lambda o: geostat.profile_likelihood(o, MODEL, "range", [0.3], estimated=("range", "variance")),
    "estimator": lambda o: geostat.MaternGP(smoothness=1.5, nugget="zero").fit(o.coordinates, o.values),
}


@pytest.mark.parametrize("what", ["exact", "near", "far from the origin", "chords"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_refuses_and_names_both_rows(way, what):
    o = given(what)
    with pytest.raises(geostat.SingularCovarianceError, match=r"s 7 and 31 \(counted from zero\) share a place") as caught:
        WAYS[way](o)
    assert caught.value.rows == (7, 31)
    assert "nugget" in str(caught.value) and "average" in str(caught.value)
    assert isinstance(caught.value, (oc.NotPositiveDefiniteError, ValueError))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.rows == (7, 31) and again.minor == caught.value.minor


@pytest.mark.parametrize("what", ["exact", "far from the origin", "chords"])
@pytest.mark.parametrize("way", FITS)
def test_every_fit_without_a_nugget_refuses(way, what):
    with pytest.raises(geostat.SingularCovarianceError, match=r"observations 7 and 31 \(counted from zero\) share a place"):
        FITS[way](given(what))


def test_a_conditional_simulation_on_a_grid_refuses():
    grid = geostat.grid_over((0, 0), (1, 1), (9, 9))
    for jitter in (1e-8, 0.0):
        with pytest.raises(geostat.SingularCovarianceError, match="observations 7 and 31"):
            geostat.simulate_grid_conditional(given("exact"), MODEL, grid, jitter=jitter)


def test_all_trials_of_one_duplicate_are_refused():
    """Whether the second pivot of a pair rounds to above zero is chance; whether it is refused is none."""
    rng = np.random.default_rng(0)
    sites = rng.uniform(size=(60, 2))
    y, targets = np.sin(6 * sites[:, 0]) + sites[:, 1], rng.uniform(size=(5, 2))
    for i in range(40):
        again = sites.copy()
        again[59] = again[i]
        o = make_observations(again, y)
        for call in (lambda o: geostat.log_likelihood(o, MODEL), lambda o: geostat.predict(o, MODEL, targets)):
            with pytest.raises(geostat.SingularCovarianceError) as caught:
                call(o)
            assert caught.value.rows == (i, 59)


def loglik_of_sixty_digits(sites, z, length, smoothness):
    """Log-likelihood of a Matérn field of variance 1 and mean zero, by a Cholesky factorization in decimals."""
    with decimal.localcontext(prec=60):
        D = decimal.Decimal
        exact, white = [[D(x) for x in site] for site in sites.tolist()], []
        factor = [[D(0)] * len(z) for _ in z]
        logdet = D(0)
        for i, (a, value) in enumerate(zip(exact, z.tolist(), strict=True)):
            for j, b in enumerate(exact[: i + 1]):
                h = sum((p - q) ** 2 for p, q in zip(a, b, strict=True)).sqrt() / D(length)
                entry = (-h).exp() * {0.5: 1, 1.5: 1 + h, 2.5: 1 + h + h * h / 3}[smoothness]
                left = entry - sum(factor[i][k] * factor[j][k] for k in range(j))
                factor[i][j] = left.sqrt() if i == j else left / factor[j][j]
            white.append((D(value) - sum(factor[i][k] * white[k] for k in range(i))) / factor[i][i])
            logdet += 2 * factor[i][i].ln()
        return -0.5 * (len(z) * math.log(2 * math.pi) + float(logdet) + float(sum(w * w for w in white)))


@pytest.mark.parametrize("distance", 10.0 ** -np.arange(2, 16))
@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
def test_near_pairs_are_right_or_refused(distance, smoothness):
    """What is answered has the digits that its pivots leave: of the value at 60 digits."""
    sites = with_pair(places(12), [0.3, 0.6], [0.3 + distance, 0.6], rows=(2, 9))
    o = make_observations(sites, np.cos(np.arange(12.0)), mean="zero")
    model = Matern(1.0, 0.5, smoothness)
    try:
        found = geostat.log_likelihood(o, model).loglik
    except geostat.SingularCovarianceError as error:
        assert set(error.rows[-2:]) == {2, 9}
        assert distance < 1e-5
        return
    right = loglik_of_sixty_digits(sites, o.values, 0.5, smoothness)
    assert found == pytest.approx(right, rel=LEAST_PIVOT)


SPHERE = {
    "dateline": ([180.0, 45.0], [-180.0, 45.0]),
    "longitudes from 0 and from -180": ([359.123, -33.3], [-0.877, -33.3]),
    "a turn": ([0.0, 12.0], [360.0, 12.0]),
    "north pole": ([17.0, 90.0], [-122.5, 90.0]),
    "south pole": ([0.0, -90.0], [180.0, -90.0]),
}


@pytest.mark.parametrize("where", SPHERE)
@pytest.mark.parametrize("model", [Matern(1.0, 1.0, 0.5), Matern(1.0, 800.0, 1.5)])
def test_one_place_of_the_sphere_is_one(where, model):
    sites = with_pair(lonlat(), *SPHERE[where])
    o = make_observations(chords(sites), values(sites))
    assert o.duplicates == 1 and count_places(o.places) == N - 1
    for way in (
        lambda: geostat.log_likelihood(o, model),
        lambda: geostat.fit(o, smoothness=1.5, nugget="zero"),
        lambda: geostat.MaternGP(smoothness=1.5, nugget="zero", lonlat=True).fit(sites, o.values),
    ):
        with pytest.raises(geostat.SingularCovarianceError, match="observations 7 and 31"):
            way()
    arcs = GreatCircle(Matern(1.0, model.range, 0.5))
    for way in (geostat.log_likelihood, geostat.vecchia_log_likelihood):
        with pytest.raises(geostat.SingularCovarianceError, match="observations 7 and 31"):
            way(make_observations(sites, o.values), arcs)


def test_a_pole_with_many_longitudes_is_one_place():
    pole = chords(np.column_stack([np.linspace(-180.0, 180.0, 500), np.full(500, 90.0)]))
    assert count_places(np.vstack([pole, -pole, chords(lonlat())])) == 2 + N
    # a fill value far away joins nothing that is near the origin
    assert count_places(np.vstack([places(2000), [[1e20, 1e20]]])) == 2001


def test_neighbours_across_the_dateline_are_two_places():
    sites = with_pair(lonlat(), [179.99999, 45.0], [-179.99999, 45.0])
    o = make_observations(chords(sites), values(sites))
    assert o.duplicates == 0 and math.isfinite(geostat.log_likelihood(o, Matern(1.0, 100.0, 0.5)).loglik)


def beside(sites, *columns):
    return np.column_stack([sites, *columns])


TIMES = np.linspace(0.0, 3.0, N)
KINDS = np.arange(N) % 2.0  # of rows 7 and 31 one, of row 8 the other

#: Covariance functions with sites of which rows 7 and 31 are one, and rows 7 and 8 are not although their place is.
FAMILIES = {
    "anisotropic": (GeometricAnisotropy(MODEL, 0.5, 0.3), PAIR),
    "axis ranges": (AxisRanges(Matern(1.0, 1.0, 1.5), (0.3, 0.7)), PAIR),
    "power": (PowerExponential(1.0, 0.5, 1.0), PAIR),
    "nested": (Matern(1.0, 0.5, 1.5) + Matern(0.4, 0.1, 0.5), PAIR),
    "nested, anisotropic": (MODEL + GeometricAnisotropy(MODEL, 0.5, 0.3), PAIR),
    "separable": (SeparableSpaceTime(MODEL, Matern(1.0, 1.0, 0.5)), beside(PAIR, TIMES)),
    "separable, great circle": (
        SeparableSpaceTime(GreatCircle(Matern(1.0, 900.0, 0.5)), Matern(1.0, 1.0, 0.5)),
        beside(with_pair(lonlat(), [180.0, 45.0], [-180.0, 45.0]), TIMES),
    ),
    "gneiting": (GneitingMatern(1.0, 0.5, 1.5, 1.0, 0.5, 1.0, 0.5), beside(PAIR, TIMES)),
    "bivariate": (BivariateMatern(1.0, 0.5, 1.5, 0.5, 2.0, 0.3), beside(PAIR, KINDS)),
    "nonstationary": (
        NonstationaryMatern(1.0, 0.5, 1.5, (0.3,), (0.2,), ("z",), ("z",), (0.0,)),
        beside(PAIR, TIMES),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("way", [geostat.log_likelihood, geostat.vecchia_log_likelihood, geostat.local_kriging])
def test_every_family_joins_what_is_one_and_nothing_else(family, way):
    model, sites = FAMILIES[family]
    sites = sites.copy()
    if family != "separable, great circle":
        sites[8, :2] = sites[7, :2]
    if sites.shape[1] == 2:
        sites[8, 0] += 0.01
    o = make_observations(sites, values(sites), space=2 if family == "nonstationary" else None)
    if sites.shape[1] > 2 and family != "bivariate":
        way(o, model)  # one place, but other times or covariates
        sites[31, 2] = sites[7, 2]
        o = make_observations(sites, values(sites), space=o.space)
    with pytest.raises(geostat.SingularCovarianceError) as caught:
        way(o, model)
    assert caught.value.rows == (7, 31)
    # the third is none of theirs
    apart = o.take(np.delete(np.arange(N), 31))
    way(apart, model)


def test_two_variables_are_one_where_the_model_makes_them_one():
    sites = beside(PAIR, np.arange(N) // 20 * 1.0)  # row 7 of the first variable, row 31 of the second
    o = make_observations(sites, values(sites))
    assert o.duplicates == 0
    assert math.isfinite(geostat.log_likelihood(o, BivariateMatern(1.0, 0.5, 1.5, 1.5, 2.0, 0.9)).loglik)
    for correlation in (1.0, -1.0):
        with pytest.raises(geostat.SingularCovarianceError, match="observations 7 and 31"):
            geostat.log_likelihood(o, BivariateMatern(1.0, 0.5, 1.5, 1.5, 2.0, correlation))


@pytest.mark.parametrize(
    ("errors", "is_refused"),
    [(None, True), ([0.0, 0.0], True), ([1e-20, 1e-20], True), ([0.1, 0.0], False), ([0.0, 1e-6], False), ([0.1, 0.1], False)],
)
def test_errors_of_the_observations_tell_them_apart(errors, is_refused):
    known = None
    if errors is not None:
        known = np.zeros(N)
        known[[7, 31]] = errors
    o = make_observations(PAIR, values(PAIR), error_variances=known)
    for way in (geostat.log_likelihood, geostat.vecchia_log_likelihood, geostat.local_kriging):
        if is_refused:
            with pytest.raises(geostat.SingularCovarianceError, match="observations 7 and 31"):
                way(o, MODEL)
        else:
            way(o, MODEL)
    # a third at that place, with an error, does not hide the two that have none
    if is_refused and errors != [1e-20, 1e-20]:
        sites = with_pair(PAIR, PAIR[7], PAIR[7], rows=(0, 20))
        beside_them = np.zeros(N)
        beside_them[[0, 20]] = 0.5
        with pytest.raises(geostat.SingularCovarianceError, match="observations 7 and 31"):
            geostat.log_likelihood(make_observations(sites, values(sites), error_variances=beside_them), MODEL)


@pytest.mark.parametrize("nugget", [1e-8, 1e-3, 1.0])
def test_with_a_nugget_duplicates_are_right(nugget):
    """Against the dense formula."""
    o, model = given("exact"), Matern(1.0, 0.5, 1.5, nugget)
    distance = np.linalg.norm(PAIR[:, None] - PAIR[None], axis=2)
    matrix = model.covariance(distance) + nugget * np.eye(N)
    solve = np.linalg.solve(matrix, np.column_stack([o.values, np.ones(N)]))
    mean = o.values @ solve[:, 1] / solve[:, 1].sum()
    residual = o.values - mean
    right = -0.5 * (N * math.log(2 * math.pi) + np.linalg.slogdet(matrix)[1] + residual @ np.linalg.solve(matrix, residual))
    assert geostat.log_likelihood(o, model).loglik == pytest.approx(right, rel=TWO_ROUTES * 1e3 / min(1.0, nugget * 1e5))


def test_many_at_one_place_are_counted_once_and_soon():
    sites = np.vstack([np.full((3000, 2), 0.25), places(3000)])
    assert count_places(sites) == 3001
    pairs = singular_pairs(MODEL, sites, np.zeros(6000))
    assert len(pairs) == 2999 and np.all(pairs[:, 0] == 0)
    assert not len(singular_pairs(MODEL, sites, np.full(6000, 2 * least_pivot(6000))))


#: A field without a nugget that is too smooth for its sites, none of which coincide, in an order that is not theirs.
LINE = np.random.default_rng(3).permutation(np.linspace(0.0, 1.0, 40)) * 0.05


@pytest.mark.parametrize(
    "way",
    [
        lambda o, m: geostat.log_likelihood(o, m),
        lambda o, m: geostat.log_likelihood(o, m, settings=geostat.FactorSettings(tile_size=16)),
        lambda o, m: geostat.predict(o, m, [0.5]),
        lambda o, m: geostat.vecchia_log_likelihood(o, m),
        lambda o, m: geostat.vecchia_log_likelihood(o, m, neighbours=6),
    ],
)
def test_a_pivot_is_named_by_the_callers_row(way):
    """The row is one that has no variance left given the others before it, and the two most alike are the nearest."""
    model = Matern(1.0, 1.0, 2.5)
    # two more of which each is alone, so that rows of the matrix are none of the caller's
    o = make_observations(np.concatenate([[90.0], LINE, [-90.0]]), np.arange(42.0))
    with pytest.raises(geostat.SingularCovarianceError, match=r"has no variance left but rounding errors given") as caught:
        way(o, model)
    row, first, second = caught.value.rows
    assert 1 <= row <= 40 and 1 <= first < second <= 40
    assert abs(o.coordinates[first, 0] - o.coordinates[second, 0]) < 0.05 / 39 * 1.01
    assert f"observation {row} (counted from zero), at ({o.coordinates[row, 0]:.10g})" in str(caught.value)
    assert f"leading minor of order {caught.value.minor} of the covariance matrix" in str(caught.value)


def test_folds_and_subsets_name_rows_of_all_data():
    o = given("exact")
    subset = o.take(np.array([39, 31, 2, 5, 7, 9, 11, 30]))
    with pytest.raises(geostat.SingularCovarianceError) as caught:
        geostat.log_likelihood(subset, MODEL)
    assert caught.value.rows == (7, 31)
    with pytest.raises(geostat.SingularCovarianceError, match="observations 7 and 31"):
        geostat.cross_validate_locally(o, MODEL, folds=np.arange(N) % 6, neighbours=5, coefficients=[0.0])


@pytest.fixture
def table(tmp_path):
    """A file with gaps: rows 7 and 31 of the values that are kept are in lines 10 and 35."""
    lines = [f"{x!r},{y!r},{z!r}" for (x, y), z in zip(PAIR.tolist(), values(PAIR).tolist(), strict=True)]
    lines.insert(3, "0.5,,1.0")
    lines.insert(20, "0.1,0.7,NA")
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["x,y,z", *lines]) + "\n")
    kept = [line for line in lines if line.split(",")[1] and not line.endswith("NA")]
    numbers = tuple(lines.index(kept[row]) + 2 for row in (7, 31))
    return path, numbers


def test_files_are_named_by_their_lines(table, tmp_path, capsys):
    path, (first, second) = table
    assert (first, second) == (10, 35)
    columns = ("--x", "x", "--y", "y", "--value", "z")
    words = f"lines {first} and {second} of data.csv share a place"
    assert shell("fit", path, *columns, "--smoothness", "1.5", "--nugget", "zero") == 2
    assert words in refused(capsys)
    assert shell("loglik", path, "--value", "z", "--theta", "1:0.5:1.5") == 2
    assert words in refused(capsys)
    # a model that was fitted with a nugget, which is taken from it
    result = tmp_path / "fit.json"
    assert shell("fit", path, *columns, "--smoothness", "1.5", "--output", result) == 0
    content = json.loads(result.read_text())
    content["fit"]["model"]["nugget"] = 0.0
    result.write_text(json.dumps(content))
    (tmp_path / "new.csv").write_text("x,y\n0.5,0.5\n")
    capsys.readouterr()
    out = ("--output", tmp_path / "out.csv")
    for command in (
        ("predict", result, path, tmp_path / "new.csv", *out),
        ("predict", result, path, tmp_path / "new.csv", *out, "--method", "vecchia"),
        ("predict", result, path, tmp_path / "new.csv", *out, "--method", "nearest"),
        ("simulate", result, "--sites", tmp_path / "new.csv", "--conditional", *out),
        ("cv", result, path),
        ("loglik", path, "--model", result),
    ):
        assert shell(*command) == 2, command
        assert words in refused(capsys), command


def test_rows_of_binary_files_count_from_one(tmp_path):
    columns = {"x": np.r_[np.nan, PAIR[:, 0]], "y": np.r_[0.5, PAIR[:, 1]], "z": np.r_[1.0, values(PAIR)]}
    with scipy.io.netcdf_file(tmp_path / "data.nc", "w") as file:
        file.createDimension("row", N + 1)
        for name, column in columns.items():
            file.createVariable(name, "d", ("row",))[:] = column
    dataset = geostat.load_dataset(geostat.DataSpec("netcdf", str(tmp_path / "data.nc"), ("x", "y"), "z"))
    with pytest.raises(geostat.SingularCovarianceError, match=r"rows 9 and 33 of data.nc share a place"):
        geostat.log_likelihood(dataset.observations, MODEL)
