"""Formulas: what they mean, and that nothing in them is ever run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.apps.geostat import fit, make_observations, parse_formula, read_table
from tests.apps.geostat.geostat_tolerances import printed
from tests.inside.geostat import FUNCTIONS

COLUMNS = {"zinc": np.array([1.0, 2.0, 4.0]), "x": np.array([0.5, 1.0, 1.5]), "dist": np.array([4.0, 9.0, 16.0])}


@pytest.mark.parametrize(
    ("text", "value", "intercept", "terms", "columns"),
    [
        ("zinc ~ 1 + x + sqrt(dist)", "zinc", True, ("x", "sqrt(dist)"), ("zinc", "x", "dist")),
        ("log(zinc) ~ x", "log(zinc)", True, ("x",), ("zinc", "x")),
        ("zinc~1", "zinc", True, (), ("zinc",)),
        ("zinc ~ 0 + x", "zinc", False, ("x",), ("zinc", "x")),
        ("zinc ~ x - 1", "zinc", False, ("x",), ("zinc", "x")),
        ("zinc ~ -1 + x", "zinc", False, ("x",), ("zinc", "x")),
        (
            "zinc ~ I(x**2 + x*dist) + I(2*(x + dist))",
            "zinc",
            True,
            ("I(x^2 + x * dist)", "I(2 * (x + dist))"),
            ("zinc", "x", "dist"),
        ),
        ("zinc ~ x*dist", "zinc", True, ("x", "dist", "x:dist"), ("zinc", "x", "dist")),
        ("zinc ~ a*b + c", "zinc", True, ("a", "b", "c", "a:b"), ("zinc", "a", "b", "c")),
        ("zinc ~ (a + b + c)^2 - a:b", "zinc", True, ("a", "b", "c", "a:c", "b:c"), ("zinc", "a", "b", "c")),
        ("zinc ~ a*b:c", "zinc", True, ("a", "b:c", "a:b:c"), ("zinc", "a", "b", "c")),
        ("zinc ~ `dist to river` + dist.m", "zinc", True, ("`dist to river`", "dist.m"), ("zinc", "dist to river", "dist.m")),
        ("zinc ~ I(-x^2) + I(2^-x^2)", "zinc", True, ("I(-x^2)", "I(2^(-x^2))"), ("zinc", "x")),
        ("zinc ~ x + (dist - 1)", "zinc", False, ("x", "dist"), ("zinc", "x", "dist")),
    ],
)
def test_parts(text, value, intercept, terms, columns):
    found = parse_formula(text)
    assert (found.value, found.intercept, found.columns) == (value, intercept, columns)
    assert found.terms == terms


def test_design_columns():
    formula = parse_formula("log(zinc) ~ x + sqrt(dist) + I(x * dist / 2) + I(3 * x ** 2)")
    x, dist = COLUMNS["x"], COLUMNS["dist"]
    expected = np.column_stack([x, np.sqrt(dist), x * dist / 2, 3 * x**2])
    np.testing.assert_array_equal(formula.covariates(COLUMNS), expected)
    np.testing.assert_array_equal(formula.values(COLUMNS), np.log(COLUMNS["zinc"]))
    assert formula.term_columns == ("x", "dist")
    assert parse_formula("zinc ~ 1").covariates(COLUMNS).shape == (3, 0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_numpys(name):
    found = parse_formula(f"zinc ~ {name}(dist)").covariates(COLUMNS)[:, 0]
    np.testing.assert_array_equal(found, getattr(np, name)(COLUMNS["dist"]))


def test_functions_do_not_hide_columns_of_their_names():
    columns = {"log": np.array([1.0, 2.0]), "y": np.array([0.0, 1.0])}
    formula = parse_formula("y ~ log + sqrt(log)")
    assert formula.term_columns == ("log",)
    np.testing.assert_array_equal(formula.covariates(columns), np.column_stack([columns["log"], np.sqrt(columns["log"])]))


def test_meuse_by_formula(data_dir, one_blas_thread):
    formula = parse_formula("log(zinc) ~ sqrt(dist)")
    table = read_table(data_dir / "meuse.csv", ("x", "y", *formula.columns))
    observations = make_observations(
        table.stack(("x", "y")) / 1000,
        formula.values(table.columns),
        covariates=formula.covariates(table.columns),
        covariate_names=formula.terms,
    )
    result = fit(observations, smoothness=0.5, method="fisher", tolerance=1e-8)
    assert result.mean_columns == ("intercept", "sqrt(dist)")
    assert result.loglik == pytest.approx(-74.920466, abs=2 * printed(6))


@pytest.mark.parametrize(
    "text",
    [
        "zinc ~ __import__('os').system('true')",
        "zinc ~ x.__class__",
        "zinc ~ x[0]",
        "zinc ~ (lambda: x)()",
        "zinc ~ [x for x in x]",
        "zinc ~ eval(x)",
        "zinc ~ exp(x, out=x)",
        "zinc ~ exp(*x)",
        "zinc ~ x if x else dist",
        "zinc ~ x and dist",
        "zinc ~ x < dist",
        "zinc ~ 'x' + x",
        "zinc ~ (y := x)",
        "zinc ~ f'{x}' + x",
        "zinc ~ 1j * x",
        "zinc ~ True + x",
        "zinc ~ 1e999 * x",
        "zinc ~ x @ dist",
        "zinc ~ x // 2",
        "zinc ~ ~x",
        "zinc ~ not x",
        "zinc ~ ",
        "zinc + x",
        "~ x",
        "zinc ~ x ~ dist",
        "zinc ~ x +",
        "zinc ~ 2",
        "zinc ~ x + x",
        "zinc ~ x - dist",
        "1 ~ x",
        "zinc ~ " + "(" * 300 + "x" + ")" * 300,
        "zinc ~ " + "-" * 250 + "x",
        "zinc ~ 1" + "0" * 400 + " * x",
        "zinc ~ x\0",
        "zinc ~ x^2",
        "zinc ~ x / 2",
        "zinc ~ 2 * x",
        "zinc ~ x / dist",
        "zinc ~ poly(x)",
        "zinc ~ poly(x, 0)",
        "zinc ~ poly(x, dist)",
        "zinc ~ factor(log(x))",
        "zinc ~ log(factor(x))",
        "zinc ~ I(x:dist)",
        "factor(zinc) ~ x",
        "zinc ~ `x",
        "zinc ~ " + "*".join(f"x{k}" for k in range(20)),
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(ValueError, match="formula"):
        parse_formula(text)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        formula = parse_formula(f"zinc ~ {text}")
    except ValueError:
        return
    assert set(formula.term_columns) <= set(formula.columns)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zinc ~ gold", "uses a column 'gold', but there are zinc, x, dist"),
        ("zinc ~ log(x - 0.5)", "is -inf in row 0"),
        ("zinc ~ sqrt(x - 1)", "is nan in row 0"),
        ("zinc ~ I(1 / (x - 1))", "is inf in row 1"),
    ],
)
def test_what_cannot_be_computed_is_said(text, words):
    with pytest.raises(ValueError, match=words):
        parse_formula(text).covariates(COLUMNS)
