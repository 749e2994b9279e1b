"""Intervals hold what A itself has, in long double, whatever made L: log-determinants, quadratic forms, solutions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.host.mixed_precision import SCALINGS, matern
from tests.host.structured import STRUCTURED
from tests.inside.precision import LARGEST_GAP, least_share, norms
from tests.long_double import truth_of
from tests.products import thorough

pytestmark = [
    pytest.mark.host,
    pytest.mark.usefixtures("no_hang", "one_blas_thread"),
    pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning"),
]

Matrix = NDArray[np.float64]
#: Matrices of each family and engine; 3,000 cases in all with ``--thorough``.
DRAWS = [3, *thorough(100)]
OPTIONS = {"devices": "host:0", "memory_budget": "64 MiB"}


def check(a: Matrix, factor: oc.CholeskyFactor, rng: np.random.Generator) -> tb.CertifiedAnswers:
    """Every interval holds the truth; or all say that they certify nothing."""
    b = np.sqrt(np.diag(a)) * rng.standard_normal(len(a))
    answers, truth = factor.certify(b), truth_of(a, b)
    logdet, (quadratic,), solution = answers
    assert solution is not None
    assert logdet.gap == quadratic.gap == solution.gap
    for answer, true in ((logdet, truth.logdet), (quadratic, truth.quadratic)):
        room = truth.error * (abs(float(true)) + len(a))
        assert answer.lower - room <= true <= answer.upper + room, (str(answer), true)
        assert answer.lower <= answer.value <= answer.upper
    off = np.abs(solution.x - truth.x)
    room = truth.error * np.abs(truth.x).max() / np.sqrt(np.diag(a)) * np.sqrt(np.diag(a)).max()
    assert (off <= solution.half_width + room).all(), (off.max(), solution.half_width.max())
    if logdet.gap <= LARGEST_GAP:
        assert logdet.half_width <= 3.0 * logdet.gap + 1e-9 * (1.0 + abs(logdet.value))
    else:
        assert not np.isfinite(logdet.half_width) and not np.isfinite(quadratic.half_width) and np.isinf(solution.error)
        assert "not certified" in str(logdet)
    return answers


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("fp64", ["native", "residue"])
@pytest.mark.parametrize("family", STRUCTURED)
def test_the_truth_is_in_every_interval(family, fp64, draws):
    rng = np.random.default_rng(len(family))
    for _ in range(draws):
        n, nb, decades = int(rng.integers(20, 90)), int(rng.choice([16, 32])), rng.uniform(-12, -2)
        a = STRUCTURED[family](n, rng)
        try:
            with oc.cholesky(a, 10.0**decades, tile_size=nb, fp64=fp64, strict=False, **OPTIONS) as factor:
                check(a, factor, rng)
        except oc.NotPositiveDefiniteError:
            with pytest.raises(oc.NotPositiveDefiniteError):
                oc.cholesky(a, tile_size=nb, devices="host:0", fp64="native")


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("threshold", [None, 1e-8, 1e-5, 1e-3])
def test_units_of_rows_change_nothing(threshold, scaling):
    rng, plain = np.random.default_rng(5), matern(150, 0.5, 0.1, 1e-4)
    a = SCALINGS[scaling](plain)
    with oc.cholesky(a, threshold, tile_size=32, **OPTIONS) as factor:
        assert check(a, factor, rng).logdet.gap < 0.2


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-170, 1e-158, 1e153, 1e160, 1e300])
@pytest.mark.parametrize("threshold", [None, 1e-3])
def test_the_size_of_right_hand_sides_changes_nothing(threshold, scale):
    """Their squares, which no sum can hold, are those of columns of size 1; ends of what is subnormal are rounded outwards."""
    a, power = matern(60, 0.5, 0.1, 0.01), round(np.log2(scale))
    b = np.random.default_rng(5).integers(-8, 9, (60, 3)).astype(float)  # a few digits, so that subnormal ones have all
    with oc.cholesky(a, threshold, tile_size=16, objective="bytes", **OPTIONS) as factor:
        usual, found = factor.certify(b), factor.certify(np.ldexp(b, power))
        assert usual.solution is not None and found.solution is not None
        exact, ulp = np.ldexp(usual.solution.x, power), 5e-324
        assert np.array_equal(found.solution.x, exact)
        assert (found.solution.half_width >= np.ldexp(usual.solution.half_width, power)).all()
        assert (found.solution.half_width <= np.ldexp(usual.solution.half_width, power) * (1 + 1e-12) + 2 * ulp).all()
        assert (np.asarray(found.solution.error) >= np.ldexp(usual.solution.error, power)).all()
        for one, other in zip(usual.quadratic, found.quadratic, strict=True):
            with np.errstate(over="ignore"):
                lower, upper = np.ldexp([one.lower, one.upper], 2 * power)
            assert other.lower <= min(lower, np.finfo(float).max) and other.upper >= upper
            assert other.lower >= min(lower, np.finfo(float).max) * (1 - 1e-12) - ulp and other.upper <= upper * (1 + 1e-12) + ulp
        refined = factor.solve(np.ldexp(b, power), refine=True)
        assert np.array_equal(refined, np.ldexp(factor.solve(b, refine=True), power))


@pytest.mark.parametrize("threshold", [1e-1, 1e-2, 1e-3, 1e-5])
def test_the_error_is_of_the_size_of_the_interval(threshold):
    """An interval that always held the truth could be infinite; these are not, and narrower than what is uncorrected is off."""
    a = matern(400, 0.5, 0.2, 1e-2)
    with oc.cholesky(a, threshold, tile_size=64, **OPTIONS) as factor:
        answers = check(a, factor, np.random.default_rng(1))
        assert 0.0 < answers.logdet.half_width < 2.0 * answers.logdet.gap
        quadratic = answers.quadratic[0]
        assert quadratic.half_width < 0.5 * answers.logdet.gap * quadratic.value + 1e-8


@pytest.mark.parametrize("shape", thorough((0.5, 0.026), (0.5, 0.21), (1.5, 0.1)))
@pytest.mark.parametrize("threshold", [None, 1e-3, 1e-5, 1e-8])
def test_larger_orders(shape, threshold):
    a = matern(1500, *shape, 1e-4)
    with oc.cholesky(a, threshold, tile_size=128, **OPTIONS) as factor:
        logdet = check(a, factor, np.random.default_rng(3)).logdet
        assert logdet.gap > 0.5 or logdet.half_width < 3.0 * logdet.gap


def test_a_factor_of_another_matrix_certifies_nothing():
    """The interval is of the matrix that is given, whatever L is."""
    a, rng = matern(120, 0.5, 0.1, 1e-3), np.random.default_rng(2)
    with oc.cholesky(a, tile_size=32, **OPTIONS) as factor:
        near, far = a + 1e-6 * np.diag(rng.random(120)), 3.0 * a
        answers = factor.certify(a=near)
        truth = truth_of(near, np.ones(120))
        assert answers.logdet.lower <= truth.logdet <= answers.logdet.upper
        assert abs(float(answers.logdet.value - truth.logdet)) < 0.5 * abs(factor.logdet() - float(truth.logdet))
        wrong = factor.logdet(certified=True, a=far)
        assert np.isinf(wrong.half_width) and wrong.gap > 1.0 and wrong.sufficient_threshold is None


@pytest.mark.parametrize(("multiple", "sign"), [(1.0, 1.0), (1.04, 1.0), (1.2, np.nan), (-1.0, np.nan)])
def test_a_sign_is_told_where_the_gap_leaves_one(multiple, sign):
    """A gap below 1 is of a positive definite matrix; the logarithm has an interval below one half only."""
    a = matern(48, 0.5, 0.1, 1e-2)
    with oc.cholesky(a, tile_size=16, **OPTIONS) as factor:
        found = factor.slogdet(certified=True, a=multiple * a)
        assert factor.slogdet() == (1.0, factor.logdet())
    assert found.logabsdet.gap < 1.0 if sign == 1.0 else found.logabsdet.gap >= 1.0
    assert np.isfinite(found.logabsdet.half_width) == (multiple == 1.0)
    np.testing.assert_equal(found.sign, sign)


def test_one_wrong_entry_of_l_is_seen():
    """A tile that a store keeps wrong is no rounding error, and no model of one hides it."""
    a = matern(128, 0.5, 0.1, 1e-2)
    with oc.cholesky(a, tile_size=32, **OPTIONS) as factor:
        dense = np.array(factor)
        good = factor.logdet(certified=True)
    dense[100, 3] += 1e-3
    wrong = dense @ dense.T  # what L is the factor of
    with oc.cholesky(wrong, tile_size=32, **OPTIONS) as factor:
        seen = factor.logdet(certified=True, a=a)
    assert seen.gap > 1e-3 > 1e6 * good.gap
    truth = truth_of(a, np.ones(128)).logdet
    assert seen.lower <= truth <= seen.upper


def test_a_factor_that_is_too_far_says_what_to_do():
    """Rows of very different size: what is small beside the norm is in few bits, and the text's advice certifies."""
    a, options = STRUCTURED["graded"](400, np.random.default_rng(6)), {"tile_size": 32, "strict": False, **OPTIONS}
    with oc.cholesky(a, 1e-3, objective="bytes", **options) as factor:
        answer = factor.logdet(certified=True)
    assert answer.gap > LARGEST_GAP and np.isinf(answer.half_width)
    assert 0.0 < answer.sufficient_threshold < 1e-3 and "leave it out, or scale" in str(answer)
    scales = np.ldexp(1.0, -np.frexp(np.sqrt(np.diag(a)))[1])
    for matrix, threshold in ((a, None), (scales[:, None] * a * scales, 1e-3)):
        with oc.cholesky(matrix, threshold, objective="bytes", **options) as factor:
            assert factor.logdet(certified=True).gap <= LARGEST_GAP


def test_shorthands_say_what_certify_says():
    a, rng = matern(100, 0.5, 0.1, 1e-3), np.random.default_rng(3)
    b, many = rng.standard_normal(100), rng.standard_normal((100, 3))
    with oc.cholesky(a, 1e-4, tile_size=32, **OPTIONS) as factor:
        answers = factor.certify(b)
        assert factor.logdet(certified=True) == answers.logdet == factor.certify().logdet
        assert tuple(factor.slogdet(certified=True)) == (1.0, answers.logdet)
        assert factor.certify().quadratic == () and factor.certify().solution is None
        assert factor.quadratic(b, certified=True) == answers.quadratic[0]
        solution = factor.solve(b, certified=True)
        assert np.array_equal(solution.x, answers.solution.x) and np.array_equal(np.asarray(solution), solution.x)
        of_many = factor.certify(many)
        assert len(of_many.quadratic) == 3 and of_many.solution.x.shape == of_many.solution.half_width.shape == (100, 3)
        assert of_many.solution.error.shape == of_many.solution.norm.shape == (3,)
        assert len(factor.quadratic(many, certified=True)) == 3
        plain = factor.quadratic(many)
        assert np.allclose(plain, [each.value for each in of_many.quadratic], rtol=1e-2)
        assert factor.quadratic(b) == pytest.approx(answers.quadratic[0].value, rel=1e-2)
        assert 1.0 - 1e-8 < answers.logdet.confidence < 1.0
        assert float(answers.logdet) == answers.logdet.value


def test_the_same_call_gives_the_same_interval():
    a = matern(100, 0.5, 0.1, 1e-3)
    with oc.cholesky(a, 1e-4, tile_size=32, **OPTIONS) as factor:
        assert factor.logdet(certified=True) == factor.logdet(certified=True)


def test_a_loaded_factor_needs_the_matrix(tmp_path):
    a = matern(100, 0.5, 0.1, 1e-3)
    with oc.cholesky(a, 1e-4, tile_size=32, store=tmp_path / "L.ooc", **OPTIONS) as factor:
        expected = factor.logdet(certified=True)
    with oc.load(tmp_path / "L.ooc") as back:
        with pytest.raises(ValueError, match="give it as a="):
            back.logdet(certified=True)
        np.save(tmp_path / "a.npy", a)
        for source in (
            a,
            tmp_path / "a.npy",
            oc.from_function(100, lambda rows, cols, out, stream: np.copyto(out, a[np.ix_(rows, cols)])),
        ):
            found = back.logdet(certified=True, a=source)
            assert (found.lower, found.upper) == pytest.approx((expected.lower, expected.upper), abs=1e-9)


@pytest.mark.parametrize("lower", [True, False])
def test_one_triangle_is_read(lower):
    a = matern(80, 0.5, 0.1, 1e-3)
    spoiled = np.array(a)
    spoiled[np.triu_indices(80, 1) if lower else np.tril_indices(80, -1)] = np.nan
    with oc.cholesky(spoiled, lower=lower, tile_size=16, **OPTIONS) as factor:
        assert factor.logdet(certified=True).gap < 1e-6


def test_no_more_intervals_miss_than_their_confidence_allows(monkeypatch):
    """Over other random vectors each time; an interval of less confidence is narrower."""
    a, confidence, misses, widths = matern(48, 0.5, 0.1, 1e-2), 0.9, 0, []
    truth = truth_of(a, np.ones(48))
    with oc.cholesky(a, 1e-2, tile_size=16, objective="bytes", **OPTIONS) as factor:
        usual = factor.logdet(certified=True).half_width
        for seed in range(200):
            monkeypatch.setattr(norms, "_SEED", seed)
            answers = factor.certify(np.ones(48), confidence=confidence)
            assert answers.logdet.confidence == answers.solution.confidence == pytest.approx(confidence)
            widths.append(answers.logdet.half_width)
            misses += not answers.logdet.lower <= truth.logdet <= answers.logdet.upper
            misses += not answers.quadratic[0].lower <= truth.quadratic <= answers.quadratic[0].upper
    assert misses <= 200 * (1.0 - confidence) and 0.0 < max(widths) < usual


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0, float("nan"), "x", None, 1j])
def test_a_confidence_that_is_no_probability_is_refused(confidence):
    error = ValueError if isinstance(confidence, float) else TypeError
    with oc.cholesky(np.eye(3), devices="host:0") as factor, pytest.raises(error, match="confidence is"):
        factor.certify(confidence=confidence)


def test_vectors_in_groups_see_the_same(monkeypatch):
    """A is read once for each group of vectors that a device has room for."""
    a, b = matern(120, 0.5, 0.1, 1e-3), np.random.default_rng(9).standard_normal((120, 3))
    with oc.cholesky(a, 1e-4, tile_size=32, **OPTIONS) as factor:
        expected = factor.certify(b)
        monkeypatch.setattr(type(factor), "_room_for", lambda factor, source, grid: (("host:0",), 50))
        found = factor.certify(b)
    assert found.logdet.gap == pytest.approx(expected.logdet.gap, rel=1e-9)
    np.testing.assert_allclose(found.solution.x, expected.solution.x, rtol=1e-12)
    np.testing.assert_allclose(found.solution.half_width, expected.solution.half_width, rtol=1e-6)


@pytest.mark.parametrize("columns", [0, 2])
def test_nothing_is_known_of_what_overflows(columns):
    b = np.array([1e110, 1e110])
    b = np.column_stack([b, [1.0, 2.0]]) if columns else b
    with oc.cholesky(np.array([[1.0, 0.9], [0.9, 1.0]]) * 1e-200, devices="host:0") as factor:
        found = factor.solve(b, certified=True)
    lost = np.isinf(found.x)
    assert lost.any() and np.array_equal(np.isinf(found.half_width), lost)
    assert np.array_equal(np.isinf(found.error), lost.all(axis=0))


def test_what_is_wrong_is_told():
    a = matern(60, 0.5, 0.1, 1e-3)
    with oc.cholesky(a, tile_size=16, **OPTIONS) as factor:
        with pytest.raises(ValueError, match="it must be"):
            factor.certify(np.ones(59))
        with pytest.raises(ValueError, match="shape"):
            factor.certify(a=a[:50, :50])
        with pytest.raises(ValueError, match="leave refine"):
            factor.solve(np.ones(60), certified=True, refine=True)
        bad = np.array(a)
        bad[40, 7] = np.nan
        with pytest.raises(oc.errors.NonFiniteError) as caught:
            factor.certify(a=bad)
        assert (caught.value.row, caught.value.col) == (40, 7)
    for dtype in (np.float32, np.complex128):
        other = oc.cholesky(a.astype(dtype), dtype=dtype, tile_size=16, **OPTIONS)
        with other as factor, pytest.raises(oc.errors.UnsupportedTypeError):
            factor.slogdet(certified=True)
    with oc.cholesky(a, tile_size=16, **OPTIONS) as factor:
        pass
    with pytest.raises(oc.errors.ClosedError):
        factor.certify()


@pytest.mark.parametrize("n", [0, 1, 2])
def test_the_smallest_orders(n):
    a = np.diag(np.arange(1.0, n + 1))
    with oc.cholesky(a, devices="host:0") as factor:
        answers = factor.certify(np.ones(n))
        true = float(np.log(np.arange(1.0, n + 1)).sum())
        assert answers.logdet.lower <= true <= answers.logdet.upper and answers.logdet.half_width < 1e-12
        assert answers.solution.x.shape == (n,)
        assert factor.certify(np.ones((n, 2))).solution.x.shape == (n, 2)


def test_what_is_read_and_multiplied_is_told():
    a = matern(100, 0.5, 0.1, 1e-3)
    with oc.cholesky(a, tile_size=32, trace=True, **OPTIONS) as factor:
        factor.certify(np.ones(100))
        assert "product with A" in factor.report.passes.totals
        assert any(record.label.startswith("product with A") for record in factor.trace.passes)


def test_a_mean_of_squares_is_seldom_so_small():
    """The Chernoff bound of chi-square's lower tail, beside SciPy's."""
    from scipy.stats import chi2

    for count, failure in ((128, 1e-16), (128, 1e-9), (64, 1e-3)):
        share = least_share(count, failure)
        assert 0.0 < share < 1.0 and chi2.cdf(count * share, count) <= failure
