"""Files as users have them: delimiters, quotes, gaps, and errors that name file, line and column."""

from __future__ import annotations

import json
import os
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.apps.geostat import read_table
from tests.inside.geostat import read_json, text_file, write_json, write_table

pytestmark = pytest.mark.plan


@pytest.fixture
def file(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "data.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


@pytest.mark.parametrize(
    "text",
    [
        "x,y,zinc\n1,2,3\n4,5,6\n",
        '"x","y","zinc"\r\n"1","2","3"\r\n4,5,6\r\n',
        "x;y;zinc\n1;2;3\n4;5;6",
        "x\ty\tzinc\n1\t2\t3\n\n4\t5\t6\n",
        "x|y|zinc\n1|2|3\n4|5|6\n",
        "x y zinc\n1  2   3\n 4 5 6 \n",
        "x, y, zinc\n1, 2, 3\n4, 5, 6\n",
        "\ufeffx,y,zinc\n1,2,3\n4,5,6\n",
        "id,zinc,my name with blanks,y,x\na,3,b c d e f,2,1\nb,6.0,,5e0,4\n",
        "x,y,zinc\n1,2,3,\n4,5,6, ,\n",
        '"x" , "y" ,"zinc"  \n"1" ,"2","3" \n4,5,6\n',
        'x,y,zinc,note\n1,2,3,"two\nlines, ""one"" mark"\n4,5,6,5" pipe\n',
    ],
)
def test_columns_are_found_by_name(file, text):
    table = read_table(file(text), ("x", "y", "zinc"))
    assert np.array_equal(table.stack(("x", "y", "zinc")), [[1, 2, 3], [4, 5, 6]])
    assert table.dropped == 0


def test_rows_with_gaps_are_dropped_and_counted(file):
    table = read_table(file("x,y,zinc,lead\n1,2,,9\n1,NA,3,9\n1,2,3,\n4,5,nan,1\n4,5,N/A,1\n7,8,9,gap\n"), ("x", "y", "zinc"))
    assert np.array_equal(table.columns["zinc"], [3, 9])
    assert table.dropped == 4


def test_optional_columns_drop_nothing(file):
    table = read_table(file("x,zinc\n1,\n2,5\n"), ("x",), optional=("zinc", "gold"))
    assert table.dropped == 0 and set(table.columns) == {"x", "zinc"}
    assert np.isnan(table.columns["zinc"][0]) and table.columns["zinc"][1] == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,y,zinc\n1,2,3\n1,2,many\n", r"data.csv line 3, column 'zinc': 'many' is not a number$"),
        ("x;y;zinc\n1;2;3,5\n", r"line 2, column 'zinc': '3,5' is not a number \(decimals are written with a point"),
        ("x,y,zinc\n1,2,inf\n", r"line 2, column 'zinc': 'inf' is not finite"),
        ("x,y,zinc\n1,2,3\n\n4,5\n", r"line 4 has 2 cells, too few for column 'zinc'"),
        ("x,y,lead\n1,2,3\n", r"has no column 'zinc'; its columns are: x, y, lead"),
        ("x,y,zinc,zinc\n1,2,3,4\n", r"more than one column 'zinc'"),
        ("x,y,zinc\n1,2,\n", r"no row with a value in every column used \(x, y, zinc\); 1 rows were dropped"),
        ("\nx,y,zinc\n1,2,3\n", r"begins with an empty line"),
        ("x,y,zinc\n1,2,3\n7,1,2,3\n", r"line 3 has 4 cells, but the header names 3 \(row names without a name\? decimals with"),
        ('"x" "y" "zinc" \n"1" 1 2 3\n', r"line 2 has 4 cells, but the header names 3"),
        ("x\ty\tzinc\n1\t2\t3\tNA\n", r"line 2 has 4 cells, but the header names 3"),
        ('x,y,zinc,note\n1,2,3,a\n1,2,3,"a\n4,5,6,b\n', r"line 3: a quotation mark is never closed"),
        ('x,y,zinc,note\n1,2,3,"a\n4,5,6,"b"\n7,8,9,c\n', r"line 2: a quotation mark is never closed, or closed within"),
        ('x,y,"zinc\n1,2,3\n', r"line 1: a quotation mark is never closed"),
        ("x,y,zinc\n1,2,1_1\n", r"line 2, column 'zinc': '1_1' is not a number"),
        ("x,y,zinc,note\n1,2,1_1,5_a\n", r"line 2, column 'zinc': '1_1' is not a number"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(file, text, words):
    with pytest.raises(ValueError, match=words):
        read_table(file(text), ("x", "y", "zinc"))


def test_codes_with_underscores_are_words(file):
    table = read_table(file("x,y,plot,zinc\n1,2,1_1,3\n4,5,10_1,6\n"), ("x", "y", "plot", "zinc"), texts=("plot",))
    assert table.texts["plot"].tolist() == ["1_1", "10_1"] and table.columns["zinc"].tolist() == [3, 6]


def test_other_files_are_refused(file, tmp_path):
    with pytest.raises(ValueError, match="not UTF-8 text"):
        read_table(file("x,y,zinc\n1,2,é\n", encoding="latin-1"), ("x", "y"))
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "nothing.csv", ("x",))


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_written_numbers_read_back_to_the_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("table") / "out.csv"
    write_table(path, {"a b": np.array(values), "c": np.arange(len(values)) * 0.1})
    table = read_table(path, ("a b", "c"))
    assert np.array_equal(table.columns["a b"], values)
    assert np.array_equal(table.columns["c"], np.arange(len(values)) * 0.1)


def test_json_appears_complete_or_not_at_all(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, {"a": [1.5, None], "b": "Matérn"})
    assert read_json(path) == {"a": [1.5, None], "b": "Matérn"} == json.loads(path.read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"a": float("nan")})
    with pytest.raises(RuntimeError, match="halfway"), text_file(path, replace=True) as stream:
        stream.write("half")
        raise RuntimeError("halfway")
    assert read_json(path)["b"] == "Matérn"
    assert os.listdir(tmp_path) == ["result.json"]


def test_results_are_as_readable_as_other_files(tmp_path):
    write_json(tmp_path / "result.json", {})
    (tmp_path / "other").write_text("")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("result.json", "other")]
    assert modes[0] == modes[1]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*absent to write result.json into"):
        write_json(tmp_path / "absent" / "result.json", {})


@pytest.mark.parametrize(("text", "words"), [("[1]", "holds a list"), ("{", "is not JSON")])
def test_other_json_is_refused(tmp_path, text, words):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_json(path)
