"""One table of options: docstrings and command lines say what it says, and every call takes all of it."""

from __future__ import annotations

import argparse
import inspect
import re
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

import ooc_chol as oc
from tests.inside.dense import POLICIES, Fp64, Objective, Policy, PrecisionRule, option_table
from tests.option_words import SHELL_WORDS, WORDS

TABLE = option_table(oc.FactorOptions)


def parsed(*words: str) -> oc.FactorOptions:
    """The options that a command line of nothing else asks for."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    oc.FactorOptions.add_arguments(parser)
    return oc.FactorOptions.from_arguments(parser.parse_args(words))


def entries(docstring: str | None) -> dict[str, str]:
    """The entries of a numpydoc list of parameters, by name, each on one line."""
    section = inspect.cleandoc(docstring or "").split("Parameters\n----------\n")[1]
    section = re.split(r"\n\n\w+\n---", section)[0]
    return {entry.split(" : ")[0]: " ".join(entry.split()) for entry in re.split(r"\n(?=\S)", section)}


def test_every_field_is_a_row_of_the_table():
    assert list(TABLE) == [field.name for field in fields(oc.FactorOptions)] == list(WORDS)


@pytest.mark.parametrize(
    ("name", "words"),
    [("policy", Policy), ("objective", Objective), ("fp64", Fp64), ("precision_rule", PrecisionRule)],
)
def test_type_checkers_know_the_words_of_the_table(name, words):
    assert get_args(words) == TABLE[name][0].choices
    for call in (oc.cholesky, oc.plan):
        assert get_type_hints(call)[name] == words


@pytest.mark.parametrize("documented", [oc.cholesky, oc.plan, oc.FactorOptions], ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", TABLE)
def test_docstrings_say_what_the_table_says(documented, name):
    row, default = TABLE[name]
    assert entries(documented.__doc__)[name] == " ".join(row.entry(name).split())
    assert inspect.signature(documented).parameters[name].default == default


def test_the_page_of_a_factorization_fits_a_screen_or_two():
    assert len(inspect.getdoc(oc.cholesky).splitlines()) <= 80


@pytest.mark.parametrize("name", SHELL_WORDS)
def test_every_option_has_a_word(name):
    words, value = WORDS[name]
    assert parsed(*words) == oc.FactorOptions(**{name: value}) != oc.FactorOptions()
    assert parsed(*words).keywords() == {**oc.FactorOptions().keywords(), name: value}


def test_what_compares_with_the_paper_has_no_word():
    assert set(TABLE) - set(SHELL_WORDS) == {"precision_rule"}
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        parsed("--precision-rule", "paper")


def test_no_words_are_the_defaults():
    assert parsed() == oc.FactorOptions()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--tile-size", "many"], "argument --tile-size: 'many' is not a whole number"),
        (["--moduli", "1.5"], "argument --moduli: '1.5' is not a whole number"),
        (["--precision-threshold", "little"], "argument --precision-threshold: invalid float value"),
        (["--half-products", "fp4"], "argument --half-products: 'fp4' is none of yes, no"),
    ],
)
def test_a_word_that_is_no_value_is_answered_with_the_option(words, text):
    with pytest.raises(argparse.ArgumentError, match=re.escape(text)):
        parsed(*words)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--fp64", "double"], "fp64 is 'double'; there are 'auto', 'native' and 'residue'"),
        (["--objective", "joules"], "objective is 'joules'; there are 'seconds' and 'bytes'"),
        (["--moduli", "99"], "moduli is 99"),
        (["--precision-threshold", "2"], "precision_threshold is 2.0"),
        (["--tile-size", "0"], "tile_size is 0"),
    ],
)
def test_a_value_without_sense_is_answered_with_the_option(words, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        parsed(*words)


def test_help_of_a_command_has_every_description():
    parser = argparse.ArgumentParser(formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=60, width=1000))
    oc.FactorOptions.add_arguments(parser)
    said = parser.format_help()
    for name in SHELL_WORDS:
        line = next(line for line in said.splitlines() if line.startswith(f"  --{name.replace('_', '-')}"))
        assert ("(default: " in line) == (TABLE[name][1] is not None), line
    assert "By default as many of the visible GPUs as are predicted" in said
    assert "{planned,sync,async,v1,v2,v3}" in said and "`" not in said and ":class:" not in said


def test_the_table_knows_every_policy():
    assert set(TABLE["policy"][0].choices) == set(POLICIES)


def test_a_list_of_devices_makes_options_that_can_be_keys():
    assert hash(oc.FactorOptions(devices=["host:0", "host:1"])) == hash(oc.FactorOptions(devices=("host:0", "host:1")))


def test_a_plan_for_memory_that_does_not_hold_l_is_refused_as_the_factorization_is():
    assert oc.plan(3000, tile_size=256, host_budget="40 MB").grid.n == 3000
    assert oc.plan(3000, tile_size=256, host_budget="1 MB", store="L.ooc").grid.n == 3000
    with pytest.raises(oc.BudgetError, match="host_budget for L") as caught:
        oc.plan(3000, tile_size=256, host_budget="1 MB")
    assert caught.value.budget_bytes == 10**6 and "give a larger host_budget" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"policy": "best"}, "policy is 'best'; there are 'planned', "),
        ({"policy": ["planned"]}, "policy is "),
        ({"policy": "best", "fp64": "residue"}, "policy is 'best'"),
        ({"memory_budget": "much"}, "memory_budget"),
        ({"host_budget": -1}, "host_budget"),
    ],
)
def test_what_makes_no_sense_is_refused_when_options_are_made(options, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        oc.FactorOptions(**options)
