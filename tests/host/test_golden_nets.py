"""Plans, results, keys, headers and traces of every system are what they were, and so are the names of what files hold."""

from __future__ import annotations

import pytest

from tests.golden import names_of, told, without
from tests.host.golden_nets import CASES, FILE, found

GOLDEN = FILE.read()["cases"]


def holding(part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name in CASES if part in GOLDEN.get(name, {part: ""})])


def test_every_case_is_recorded_and_names_no_module():
    assert set(GOLDEN) == set(CASES)
    assert "ooc_chol." not in FILE.path.read_text(encoding="utf-8")


@holding("everywhere")
def test_what_holds_on_every_machine_is_what_it_was(name):
    different = FILE.differences(found(name)["everywhere"], GOLDEN[name]["everywhere"])
    assert not different, different


@pytest.mark.golden_bits(FILE.path)
@holding("bits")
def test_bits_are_what_they_were(name):
    different = FILE.differences(found(name)["bits"], GOLDEN[name]["bits"])
    assert not different, different


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_the_parts_that_were_recorded(name):
    assert set(found(name)) == set(GOLDEN[name])


@pytest.mark.parametrize(
    ("there", "here", "line"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a: b is 2, and was 1"),
        ({"a": {"b": 1}}, {"a": {}}, "a: b is 'gone', and was 1"),
        ({}, {"b": None}, "b is None, and was 'not there'"),
        ({"a": True}, {"a": {"b": 1}}, "a is 'gone', and was True"),
    ],
)
def test_a_difference_names_its_field_and_what_writes_it_anew(there, here, line):
    text = FILE.differences(here, there)
    assert line in text.splitlines() and "python -m tests.host.golden_nets writes golden_nets.json anew" in text


def test_values_are_told_by_what_they_are():
    one, other = (told({"rows": [{"x": x}] * 99}) for x in (0.1, 0.1 + 2**-55))
    assert one != other and len(str(one)) < 160
    assert without({"seconds": 1.5, "rows": [{"seconds": 2.5}]}, {"seconds"}) == {
        "seconds": "left out",
        "rows": [{"seconds": "left out"}],
    }
    assert names_of([{"a": 1, "b": {"c": 2}}]) == {"fields": "a b", "b": {"fields": "c"}}
