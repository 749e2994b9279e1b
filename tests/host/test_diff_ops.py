"""Operations of diff: values beside dense matrices, cotangents by the identity of adjoints and by differences, twice."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.diff import Pattern, vjp
from tests.host.diff_matrices import MATRICES, dense, entries, poisson, random_matrix
from tests.host.diff_ops import cases, values_at
from tests.inside.diff import ops, run
from tests.tolerances import unit_roundoff

pytestmark = pytest.mark.host

CASES = {case.name: case for case in cases()}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)

#: Operations multiply at most two of what they are given: differences of second order have no error but rounding.
STEP = 0.5


def close(found, expected, terms=64):
    """Equal but for the rounding of sums of so many terms, in float64."""
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    return np.shape(found) == np.shape(expected) and bool(
        (np.abs(found - expected) <= terms * unit_roundoff(np.float64) * scale).all()
    )


def directions(case, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(array.shape) for array in case.given]


def derivative(function, given, along):
    """The derivative along a direction by a central difference: exact for what is of second order."""
    ahead = function(*(x + STEP * d for x, d in zip(given, along, strict=True)))
    behind = function(*(x - STEP * d for x, d in zip(given, along, strict=True)))
    return (ahead - behind) / (2 * STEP)


def inner(xs, ys):
    return sum(float(np.vdot(x, y)) for x, y in zip(xs, ys, strict=True))


@every_case
def test_values_are_those_of_dense_matrices(case):
    assert close(run(case.op, *case.given), values_at(case))


@every_case
def test_cotangents_are_those_of_differences(case):
    out = run(case.op, *case.given)
    g = np.random.default_rng(2).standard_normal(out.shape)
    found = vjp(case.op, case.given, g)
    assert [array.shape for array in found] == [array.shape for array in case.given]
    for number, array in enumerate(case.given):
        for place in np.ndindex(array.shape):
            along = [np.zeros_like(other) for other in case.given]
            along[number][place] = 1.0
            expected = np.vdot(g, derivative(case.op.forward, case.given, along))
            assert abs(found[number][place] - expected) <= 1e-12 * max(1.0, abs(expected))


@every_case
def test_cotangents_are_adjoint_to_derivatives(case):
    along = directions(case)
    out = run(case.op, *case.given)
    g = np.random.default_rng(3).standard_normal(out.shape)
    left = np.vdot(g, derivative(case.op.forward, case.given, along))
    right = inner(vjp(case.op, case.given, g), along)
    assert abs(left - right) <= 1e-12 * max(1.0, abs(left))


@every_case
def test_cotangents_of_cotangents_are_adjoint_to_their_derivatives(case):
    """The second order: ``<w, d vjp> = <vjp of vjp (w), d>``, by operations that record what they are made of."""
    out = run(case.op, *case.given)
    rng = np.random.default_rng(4)
    g = rng.standard_normal(out.shape)
    w = [rng.standard_normal(array.shape) for array in case.given]
    along = [*directions(case), rng.standard_normal(g.shape)]

    def pulled(*given_and_g):
        *given, cotangent = given_and_g
        return inner(w, vjp(case.op, given, cotangent))

    tape = Tape()
    variables = [tape.variable(array) for array in (*case.given, g)]
    found = case.op.pull(tape.apply, variables[:-1], variables[-1], [True] * len(case.given))
    gradients = tape.backward(list(zip(found, w, strict=True)), variables)
    left = derivative(pulled, [*case.given, g], along)
    right = inner(gradients, along)
    assert abs(left - right) <= 1e-11 * max(1.0, abs(left))


class Tape:
    """Reverse mode in a dozen lines: what a framework does with ``apply``."""

    def __init__(self):
        self.records = []

    def variable(self, array):
        return Variable(array)

    def apply(self, op, *given):
        out = Variable(run(op, *(variable.array for variable in given)))
        self.records.append((op, given, out))
        return out

    def backward(self, seeds, wanted):
        held = {}

        def add(variable, cotangent):
            held[variable] = held[variable] + cotangent if variable in held else cotangent

        for variable, cotangent in seeds:
            add(variable, cotangent)
        for op, given, out in reversed(self.records):
            if out in held:
                for variable, cotangent in zip(given, vjp(op, [v.array for v in given], held[out]), strict=True):
                    add(variable, cotangent)
        return [held.get(variable, np.zeros_like(variable.array)) for variable in wanted]


class Variable:
    def __init__(self, array):
        self.array = array
        self.shape = array.shape

    def __add__(self, other):
        raise AssertionError("operations on one matrix add nothing up themselves")


@every_case
def test_only_the_cotangents_that_are_wanted_are_computed(case):
    out = run(case.op, *case.given)
    for number in range(len(case.given)):
        wanted = [other == number for other in range(len(case.given))]
        found = vjp(case.op, case.given, np.ones_like(out), wanted=wanted)
        assert [array is not None for array in found] == wanted


@every_case
def test_a_gradient_is_the_same_to_the_bit_every_time(case):
    out = run(case.op, *case.given)
    g = np.random.default_rng(5).standard_normal(out.shape)
    first = [out, *vjp(case.op, case.given, g)]
    again = [run(case.op, *case.given), *vjp(case.op, case.given, g)]
    assert all(one.tobytes() == two.tobytes() for one, two in zip(first, again, strict=True))


@every_case
def test_float32_stays_float32_and_is_as_near_as_its_roundings(case):
    given = [array.astype(np.float32) for array in case.given]
    out = run(case.op, *given)
    found = vjp(case.op, given, np.ones_like(out))
    assert {array.dtype for array in (out, *found)} == {np.dtype(np.float32)}
    exact = run(case.op, *(array.astype(np.float64) for array in given))
    assert (np.abs(out - exact) <= 64 * unit_roundoff(np.float32) * max(1.0, np.abs(exact).max(initial=0))).all()


# functions of patterns and values


@pytest.mark.parametrize("name", MATRICES)
def test_functions_are_those_of_dense_matrices(name):
    p, a = entries(name)
    full = dense(p, a)
    assert np.array_equal(dense(*oc.diff.transpose(p, a)), full.T)
    for k in (-1, 0, 2):
        assert np.array_equal(dense(*oc.diff.tril(p, a, k)), np.tril(full, k))
        assert np.array_equal(dense(*oc.diff.triu(p, a, k)), np.triu(full, k))
    assert np.array_equal(oc.diff.diagonal(p, a), full.diagonal())
    assert close(oc.diff.row_sums(p, a), full.sum(axis=1))
    rows, columns = np.arange(1.0, p.n_rows + 1), np.arange(2.0, p.n_columns + 2)
    assert close(dense(p, oc.diff.scale(p, a, rows=rows, columns=columns)), rows[:, None] * full * columns)
    assert oc.diff.scale(p, a) is a
    q, b = Pattern.of(random_matrix(p.shape, 0.5, 11))
    assert close(dense(*oc.diff.add(p, a, q, b)), full + dense(q, b))
    assert close(dense(*oc.diff.add(p, a, q, b, alpha=2.0, beta=-0.5)), 2 * full - dense(q, b) / 2)
    assert close(dense(*oc.diff.spgemm(p, a, *oc.diff.transpose(p, a))), full @ full.T)


@pytest.mark.parametrize("function", ["add", "scale", "spgemm"])
def test_functions_are_differentiated_through_a_tape_of_operations(function):
    """Gradients of what is made of several operations, by differences."""
    p, a = entries("square")
    q, b = Pattern.of(random_matrix((7, 7), 0.4, 12))
    rng = np.random.default_rng(6)
    d, e = rng.standard_normal((2, 7))
    calls = {
        "add": (lambda apply, a, b: oc.diff.add(p, a, q, b, apply=apply)[1], (a, b)),
        "scale": (lambda apply, a, d, e: oc.diff.scale(p, a, rows=d, columns=e, apply=apply), (a, d, e)),
        "spgemm": (lambda apply, a, b: oc.diff.spgemm(p, a, q, b, apply=apply)[1], (a, b)),
    }
    call, given = calls[function]
    g = rng.standard_normal(call(run, *given).shape)
    tape = SummingTape()
    variables = [tape.variable(array) for array in given]
    gradients = tape.backward([(call(tape.apply, *variables), g)], variables)
    along = [rng.standard_normal(array.shape) for array in given]
    # scale is of third order in all of its arguments together, so the step must be small
    step = 1e-4
    ahead, behind = (call(run, *(x + s * y for x, y in zip(given, along, strict=True))) for s in (step, -step))
    assert inner(gradients, along) == pytest.approx(np.vdot(g, ahead - behind) / (2 * step), rel=1e-6)


class SummingTape(Tape):
    """A tape whose variables can be added."""

    def variable(self, array):
        return Summand(array, self)

    def apply(self, op, *given):
        out = Summand(run(op, *(variable.array for variable in given)), self)
        self.records.append((op, given, out))
        return out


class Summand(Variable):
    def __init__(self, array, tape):
        super().__init__(array)
        self.tape = tape

    def __add__(self, other):
        return self.tape.apply(Sum(), self, other)


class Sum(ops.AbstractOp):
    def forward(self, *given):
        return given[0] + given[1]

    def pull(self, apply, given, g, wanted):
        return g, g


def test_gradients_of_a_product_have_the_patterns_of_the_matrices():
    p, a = Pattern.of(poisson(12))
    triples = oc.diff.functions.structure_of(p, p)
    da, db = vjp(ops.Contract(triples), (a, a), np.ones(triples.pattern.nnz))
    assert da.shape == db.shape == (p.nnz,)
    full = dense(p, a)
    ones = (dense(triples.pattern, np.ones(triples.pattern.nnz)) != 0).astype(float)
    assert close(da, (ones @ full.T)[p.rows, p.indices]) and close(db, (full.T @ ones)[p.rows, p.indices])


def test_merged_values_are_differentiated_as_sums():
    found = Pattern.canonical([0, 4, 6], [2, 0, 2, 2, 1, 1], (2, 3))
    given = np.arange(1.0, 7.0)
    tape = Tape()
    variable = tape.variable(given)
    values = found.values(variable, apply=tape.apply)
    assert values.array.tolist() == [2.0, 8.0, 11.0]
    assert tape.backward([(values, np.array([10.0, 20.0, 30.0]))], [variable])[0].tolist() == [20.0, 10.0, 20.0, 20.0, 30.0, 30.0]


every_call = pytest.mark.parametrize(
    "call",
    [
        lambda p, v, w: oc.diff.diagonal(p, w),
        lambda p, v, w: oc.diff.tril(p, w),
        lambda p, v, w: oc.diff.triu(p, w),
        lambda p, v, w: oc.diff.transpose(p, w),
        lambda p, v, w: oc.diff.row_sums(p, w),
        lambda p, v, w: oc.diff.spgemm(p, w, p, v),
        lambda p, v, w: oc.diff.spgemm(p, v, p, w),
        lambda p, v, w: oc.diff.add(p, v, p, w),
        lambda p, v, w: oc.diff.scale(p, w, rows=np.ones(p.n_rows)),
        lambda p, v, w: oc.diff.scale(p, w, columns=np.ones(p.n_columns)),
        lambda p, v, w: oc.diff.scale(p, w),
        lambda p, v, w: Pattern.canonical(p.indptr, p.indices, p.shape).values(w),
    ],
)


@every_call
@pytest.mark.parametrize("count", [1, 4, 50])
def test_values_of_another_length_are_refused(call, count):
    p, v = Pattern.of(random_matrix((4, 4), 0.6, 1))
    assert p.nnz not in (1, 4, 50)
    with pytest.raises(ValueError, match=r"10 (entries|places)"):
        call(p, v, np.ones(count))


@every_call
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (lambda v: np.ma.masked_array(v, v == v[1]), oc.errors.MissingValueError),
        (lambda v: v.tolist(), TypeError),
        (lambda v: "abc", TypeError),
        (lambda v: None, TypeError),
        (lambda v: v.astype(int), TypeError),
        (lambda v: v.astype(complex), TypeError),
    ],
    ids=["masked", "list", "str", "None", "int", "complex"],
)
def test_values_that_are_no_array_of_floats_are_refused(call, kind, error):
    p, v = Pattern.of(random_matrix((4, 4), 0.6, 1))
    with pytest.raises(error, match=r"give (an array|both in one type)|only real floating-point|is masked"):
        call(p, v, kind(v))


def test_two_types_are_refused_and_factors_change_none():
    p, v = Pattern.of(random_matrix((4, 4), 0.6, 1))
    narrow = v.astype(np.float32)
    for call in (lambda: oc.diff.add(p, v, p, narrow), lambda: oc.diff.scale(p, narrow, rows=np.ones(4))):
        with pytest.raises(TypeError, match="give both in one type"):
            call()
    assert oc.diff.add(p, narrow, p, narrow, alpha=np.float64(2), beta=np.float64(0.5))[1].dtype == np.float32
