"""The oldest packages are those of the lower bounds: each that the package and its tests need has one."""

from __future__ import annotations

import subprocess
import sys

from tests.oldest import ROOT, oldest


def test_every_package_has_an_oldest_version(processes: None):
    command = [sys.executable, "-m", "tests.oldest"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(printed) > 30 and [each for each in printed if each.count("==") != 1] == []


def test_a_lower_bound_is_the_version_and_extras_of_our_own_are_looked_up():
    extras = {"a": ["one>=1.2.3", "ooc_chol[b]"], "b": ["two==5"]}
    assert list(oldest(["three>=2024.1", "ooc_chol[a,b]"], extras)) == ["three==2024.1", "one==1.2.3", "two==5", "two==5"]
