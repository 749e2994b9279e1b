"""Sizes written by people, options, and the folder of measured rates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol import FactorOptions
from tests.inside.ground import cache_directory, format_bytes, parse_bytes, parse_count, parse_devices
from tests.inside.hardware import resolve_devices

UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
UNITS |= {name.removesuffix("B"): count for name, count in UNITS.items() if len(name) > 1}


@given(count=st.integers(1, 1000), unit=st.sampled_from(sorted(UNITS)), space=st.sampled_from(["", " ", "  "]))
def test_a_whole_number_with_a_unit_means_exactly_that(count, unit, space):
    for text in (f"{count}{space}{unit}", f" {count}{space}{unit.lower()} ", f"{count}{space}{unit.upper()}"):
        assert parse_bytes(text) == count * UNITS[unit]
    assert parse_bytes(count) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1.5 KiB", 1536), (".5MiB", 2**19), ("2.GB", 2 * 10**9), ("0.0015 kB", 2), ("1e9", 10**9), ("8E-1 GB", 8 * 10**8)],
)
def test_fractions_are_rounded_to_bytes(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", 2),
        (" 2 ", 2),
        ("cuda:0", ("cuda:0",)),
        ("host:0,host:1", ("host:0", "host:1")),
        ("host:0, host:1,", ("host:0", "host:1")),
    ],
)
def test_devices_are_counted_or_named_with_blanks_or_without(text, expected):
    assert parse_devices(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "-1 GB", "1e", "80 gigabytes", "1,5 GB", "1.2.3 GB", "nan", "80 GB each"])
def test_what_is_no_size_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"memory_budget: .* is not a size; write for example .*'16 GiB'"):
        parse_bytes(text, "memory_budget")


@pytest.mark.parametrize("size", [0, -1, "0", "0 GB", "0.0001 B"])
def test_a_size_must_be_more_than_zero(size):
    with pytest.raises(ValueError, match=r"host_budget is .*more than zero"):
        parse_bytes(size, "host_budget")


@pytest.mark.parametrize("size", [1.5, True, None, b"1 GB", [1], np.bool_(True), np.array([1.0])])
def test_other_types_are_refused_by_name(size):
    with pytest.raises(TypeError, match=f"memory_budget is a {type(size).__name__}; give bytes as an int"):
        parse_bytes(size, "memory_budget")


@pytest.mark.parametrize("size", [8e9, np.float64(8e9), np.int64(8 * 10**9), np.uint64(8 * 10**9), np.array(8 * 10**9)])
def test_numbers_that_are_whole_are_sizes(size):
    assert parse_bytes(size) == 8 * 10**9
    assert type(parse_bytes(size)) is int


def test_a_size_beyond_counting_is_refused():
    with pytest.raises(ValueError, match=r"memory_budget is '1e999'"):
        parse_bytes("1e999", "memory_budget")


@pytest.mark.parametrize(("text", "expected"), [("250", 250), ("1e5", 10**5), ("1.5E3", 1500), ("100_000", 10**5), (" 7 ", 7)])
def test_counts_may_have_an_exponent(text, expected):
    assert parse_count(text) == expected


@pytest.mark.parametrize("text", ["", "1.5", "1e-1", "many", "5 GB", "nan"])
def test_what_is_no_count_is_refused_with_examples(text):
    with pytest.raises(ValueError, match=r"is not a whole number; write for example 100000 or 1e5"):
        parse_count(text)


@pytest.mark.parametrize("option", ["tile_size", "moduli", "memory_budget", "host_budget"])
@pytest.mark.parametrize("kind", [np.int64, np.uint16, np.array])
def test_whole_numbers_of_numpy_are_taken_as_ints(option, kind):
    options = FactorOptions(**{option: kind(8)})
    assert options == FactorOptions(**{option: 8})
    assert type(getattr(options, option)) is int


def test_a_count_of_devices_may_be_numpys():
    assert resolve_devices(np.int64(1)) == resolve_devices(1)


@given(st.integers(1, 10**15))
def test_a_written_size_is_read_back_to_three_digits(count):
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.005)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_499, "999 kB"), (999_600, "1 MB"), (80e9, "80 GB"), (2.5e12, "2.5 TB")],
)
def test_sizes_are_written_in_powers_of_1000(count, text):
    assert format_bytes(count) == text


def test_a_tile_size_is_at_least_one():
    with pytest.raises(ValueError, match="tile_size is 0"):
        FactorOptions(tile_size=0)


def test_an_unknown_objective_is_answered_with_those_there_are():
    with pytest.raises(ValueError, match="'joules'; there are 'seconds' and 'bytes'"):
        FactorOptions(objective="joules")


def test_the_folder_of_rates_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"
    monkeypatch.delenv("OOC_CHOL_CACHE")
    assert cache_directory() == tmp_path / "xdg" / "ooc_chol"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "ooc_chol"
