"""Factors, polynomials and interactions of formulas: columns as R makes them, levels kept for predictions."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from ooc_chol.apps.geostat import DataSpec, UnknownLevelError, load_table, parse_formula
from tests.apps.geostat.geostat_tolerances import printed
from tests.inside.cli import main
from tests.inside.geostat import quoted_cells

pytestmark = pytest.mark.usefixtures("one_blas_thread")

RNG = np.random.default_rng(0)
COLUMNS = {
    "z": RNG.normal(size=12),
    "x": 1000.0 + RNG.normal(size=12),
    "soil": np.array(list("abcabcabcabc")),
    "lime": np.array([1.0, 0.0] * 6),
}

#: R 4: ``poly(1:10, 2)``, as printed.
R_POLY = """-0.49543369  0.52223297  -0.38533732  0.17407766  -0.27524094 -0.08703883  -0.16514456 -0.26111648
            -0.05504819 -0.34815531   0.05504819 -0.34815531   0.16514456 -0.26111648   0.27524094 -0.08703883
             0.38533732  0.17407766   0.49543369  0.52223297"""


def test_polynomials_are_those_of_r():
    found = parse_formula("z ~ poly(x, 2)").covariates({"z": np.zeros(10), "x": np.arange(1.0, 11.0)})
    np.testing.assert_allclose(found, np.array(R_POLY.split(), dtype=float).reshape(10, 2), atol=printed(8))


def test_polynomials_stay_those_of_the_observations():
    formula = parse_formula("z ~ poly(x, 3)")
    whole = formula.covariates(COLUMNS)
    np.testing.assert_allclose(whole.T @ whole, np.eye(3), atol=1e-12)
    some = {name: column[:2] for name, column in COLUMNS.items()}
    np.testing.assert_array_equal(formula.covariates(some, formula.basis(COLUMNS)), whole[:2])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("z ~ soil", ("soil[b]", "soil[c]")),
        ("z ~ 0 + soil", ("soil[a]", "soil[b]", "soil[c]")),
        ("z ~ 0 + soil + factor(lime)", ("soil[a]", "soil[b]", "soil[c]", "factor(lime)[1]")),
        ("z ~ x + factor(lime) + soil - 1", ("x", "factor(lime)[0]", "factor(lime)[1]", "soil[b]", "soil[c]")),
        (
            "z ~ 0 + soil * factor(lime)",
            ("soil[a]", "soil[b]", "soil[c]", "factor(lime)[1]", "soil[b]:factor(lime)[1]", "soil[c]:factor(lime)[1]"),
        ),
        ("z ~ factor(lime)", ("factor(lime)[1]",)),
        ("z ~ C(lime) + x", ("C(lime)[1]", "x")),
        (
            "z ~ soil * factor(lime)",
            ("soil[b]", "soil[c]", "factor(lime)[1]", "soil[b]:factor(lime)[1]", "soil[c]:factor(lime)[1]"),
        ),
        ("z ~ x:soil", ("x:soil[a]", "x:soil[b]", "x:soil[c]")),
        ("z ~ x * soil", ("x", "soil[b]", "soil[c]", "x:soil[b]", "x:soil[c]")),
        ("z ~ poly(x, 2):soil", tuple(f"poly(x, 2)[{k}]:soil[{level}]" for level in "abc" for k in (1, 2))),
    ],
)
def test_columns_of_treatment_contrasts_as_in_r(text, names):
    """A factor loses its first level where the model has the term without it; so the columns span what R's do."""
    formula = parse_formula(text)
    basis = formula.basis(COLUMNS)
    design = formula.covariates(COLUMNS, basis)
    assert formula.names(basis) == names and design.shape == (12, len(names))
    whole = np.column_stack([np.ones((12, int(formula.intercept))), design])
    assert np.linalg.matrix_rank(whole) == whole.shape[1]
    for k, name in enumerate(names):
        expected = np.ones(12)
        for part in name.split(":"):
            variable, _, level = part.partition("[")
            column = COLUMNS[{"factor(lime)": "lime", "C(lime)": "lime"}.get(variable, variable)] if "poly" not in part else None
            if column is None:
                expected = expected * parse_formula("z ~ poly(x, 2)").covariates(COLUMNS)[:, int(level[0]) - 1]
            else:
                levels = [str(int(one)) if column.dtype == float else one for one in column] if level else None
                expected = expected * (np.array(levels) == level[:-1] if levels is not None else column)
        np.testing.assert_array_equal(design[:, k], expected)


def test_one_two_and_their_words_are_one_level():
    formula = parse_formula("z ~ factor(lime)")
    basis = formula.basis(COLUMNS)
    words = {"z": COLUMNS["z"], "lime": np.array(["1", "0"] * 6)}
    np.testing.assert_array_equal(formula.covariates(words, basis), formula.covariates(COLUMNS, basis))
    ten = parse_formula("z ~ factor(k)").basis({"z": np.zeros(24), "k": np.repeat(np.arange(1.0, 13.0), 2)})
    assert ten.levels["factor(k)"] == tuple(map(str, range(1, 13))), "numbers are in the order of numbers"


def test_an_unknown_level_is_named():
    formula = parse_formula("z ~ soil")
    others = {**COLUMNS, "soil": np.array(list("abdabcabeabc"))}
    with pytest.raises(UnknownLevelError, match="'soil' has the levels 'd', 'e', but was fitted with 'a', 'b', 'c'") as caught:
        formula.covariates(others, formula.basis(COLUMNS))
    assert caught.value.unknown == ("d", "e") and caught.value.column == "soil"


@pytest.mark.parametrize(
    ("text", "columns", "words"),
    [
        ("z ~ log(soil)", {}, "computes with 'soil', which is text"),
        ("z ~ poly(lime, 2)", {}, "needs more than 2 different values"),
        ("z ~ soil", {"soil": np.array(["a"] * 12)}, "has one level, 'a'"),
        ("z ~ factor(x)", {}, "has 12 levels in 12 rows.*is it no factor"),
    ],
)
def test_what_is_no_factor_or_polynomial_is_said(text, columns, words):
    with pytest.raises(ValueError, match=words):
        parse_formula(text).covariates({**COLUMNS, **columns})


def test_the_basis_goes_through_plain_data():
    formula = "z ~ soil + poly(x, 2)"
    basis = parse_formula(formula).basis(COLUMNS)
    made = DataSpec(
        "csv", "a.csv", ("e", "n"), "z", ("soil", "x"), formula=formula, levels=basis.levels, polynomials=basis.polynomials
    )
    assert DataSpec.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert made.terms == ("soil[b]", "soil[c]", "poly(x, 2)[1]", "poly(x, 2)[2]")
    for wrong in (
        {"levels": {"soil": [1, 2]}},
        {"levels": {"soil": []}},
        {"polynomials": {"poly(x, 2)": [1.0, 2.0, 3.0, -1.0, 2.0]}},
    ):
        with pytest.raises(ValueError, match="not understood"):
            DataSpec.from_dict({**made.to_dict(), **wrong})


# files


@pytest.mark.parametrize(
    ("lines", "is_text"),
    [
        ('x,v,code\n1,2,"1"\n2,3,"2"\n', True),
        ("x,v,code\n1,2,1\n2,3,2\n", False),
        ('"x","v","code"\n"1","2","1"\n"2","3","2"\n', False),
        ("x,v,code\n1,2,1\n2,3,b\n", True),
        ('x,v,code\n1,2,NA\n2,3,"2"\n3,4,"2"\n', True),
        ('x;v;code\n1;2; "1"\n2;3; "2"\n', True),
        ('x v code\n1 2 "1"\n2 3 "2"\n', True),
    ],
)
def test_codes_in_quotation_marks_are_text_where_numbers_have_none(tmp_path, lines, is_text):
    (tmp_path / "a.csv").write_text(lines)
    table = load_table(tmp_path / "a.csv", ("x", "v", "code"), texts=("code",))
    assert ("code" in table.texts) == is_text and ("code" in table.columns) == (not is_text)
    assert table.dropped == (1 if "NA" in lines else 0) and table.n == len(table.columns["x"])


def test_quoted_cells_may_hold_delimiters():
    assert quoted_cells('"a,""b",2,"c"\n', ",") == [True, False, True]
    assert quoted_cells("1,,2", ",") == [False, False, False]


@pytest.mark.parametrize("name", ["a.parquet", "a.gpkg"])
def test_words_of_other_files(tmp_path, name):
    geopandas = pytest.importorskip("geopandas")
    frame = geopandas.GeoDataFrame(
        {"v": [1.0, 2.0, 3.0, 4.0], "soil": ["b", None, "a", " a "]},
        geometry=geopandas.points_from_xy([0, 1, 2, 3], [0, 1, 2, 3]),
    ).set_crs(28992)
    frame.to_parquet(tmp_path / name) if name.endswith("parquet") else frame.to_file(tmp_path / name)
    table = load_table(tmp_path / name, ("x", "y", "v", "soil"), texts=("soil",))
    assert table.texts["soil"].tolist() == ["b", "a", "a"] and table.dropped == 1 and table.crs.name == "EPSG:28992"
    with pytest.raises(ValueError, match="soil"):
        load_table(tmp_path / name, ("x", "y", "soil"))


# from the shell


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Two soils of different means, their codes in quotation marks; some sites."""
    folder = tmp_path_factory.mktemp("soils")
    rng = np.random.default_rng(5)
    sites = rng.uniform(size=(80, 2))
    code = 1 + (rng.uniform(size=80) > 0.5)
    values = 3.0 * (code == 2) + np.sin(4 * sites[:, 0]) + 0.1 * rng.normal(size=80)
    with (folder / "data.csv").open("w", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(["x", "y", "v", "soil"])
        writer.writerows([*map(float, row), value, str(kind)] for row, value, kind in zip(sites, values, code, strict=True))
    (folder / "sites.csv").write_text("x,y,soil\n0.5,0.5,1\n0.5,0.5,2\n")
    (folder / "strange.csv").write_text("x,y,soil\n0.5,0.5,1\n0.6,0.5,3\n")
    return folder


def test_factors_from_fit_to_prediction(data, tmp_path, capsys):
    fit = ["fit", str(data / "data.csv"), "--x", "x", "--y", "y", "--smoothness", "0.5", "--max-evaluations", "15"]
    model, out = str(tmp_path / "model.json"), str(tmp_path / "out.csv")
    assert main(["geostat", *fit, "--formula", "v ~ soil", "--output", model]) == 0
    told = capsys.readouterr()
    mean = json.loads(Path(model).read_text())["fit"]["mean"]
    assert "soil is text: a factor of the levels 1, 2" in told.err and "soil[2] " in told.out
    assert mean["columns"] == ["intercept", "soil[2]"] and mean["coefficients"][1] == pytest.approx(3.0, abs=0.2)
    assert main(["geostat", "predict", model, str(data / "sites.csv"), "--output", out]) == 0
    first, second = load_table(out, ("prediction",)).columns["prediction"]
    assert second - first == pytest.approx(mean["coefficients"][1], rel=1e-9)
    capsys.readouterr()
    assert main(["geostat", "predict", model, str(data / "strange.csv"), "--output", out, "--force"]) == 2
    assert "the factor 'soil' has the level '3'" in capsys.readouterr().err
    (data / "numbers.csv").write_text((data / "data.csv").read_text().replace('"1"', "1").replace('"2"', "2"))
    numbers = [fit[0], str(data / "numbers.csv"), *fit[2:], "--value", "v", "--covariates", "soil", "--output", model]
    assert main(["geostat", *numbers]) == 0
    capsys.readouterr()
    assert main(["geostat", "predict", model, str(data / "data.csv"), "--output", out, "--force"]) == 2
    assert "name it in a --formula" in capsys.readouterr().err
    assert main(["geostat", *fit, "--value", "v", "--covariates", "soil"]) == 2
    assert "name it in a --formula" in capsys.readouterr().err


def test_meuse_flooding_frequency_is_a_factor(data_dir):
    """Quoted codes of R's file: two contrasts, as in gstat's log(zinc) ~ sqrt(dist) + ffreq."""
    table = load_table(data_dir / "meuse.csv", ("zinc", "dist", "ffreq", "landuse"), texts=("ffreq", "landuse"))
    formula = parse_formula("log(zinc) ~ sqrt(dist) + ffreq")
    assert formula.names(formula.basis(table.all_columns)) == ("sqrt(dist)", "ffreq[2]", "ffreq[3]")
    assert table.dropped == 1 and len(set(table.texts["landuse"].tolist())) == 15
