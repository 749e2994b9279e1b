"""The measurements of a release: commands that there are, within their time."""

from __future__ import annotations

import shlex

import pytest

from benchmarks import release
from benchmarks.running import parsed
from tests.inside.bench import suites

pytestmark = pytest.mark.plan

EVERY = [(gpus, command) for gpus, commands in release.COMMANDS.items() for command in commands]


@pytest.mark.parametrize(("gpus", "command"), EVERY, ids=lambda each: str(getattr(each, "words", each)))
def test_every_command_is_one_that_can_be_given(gpus, command):
    module, *words = shlex.split(command.words)
    if module == "benchmarks":
        case, options = parsed(words)
        assert case.get("run") is not None and options.force
    else:
        assert module == "ooc_chol" and words[:2] == ["bench", "suite"]
        assert {case.name for case in suites.SUITES[words[2]]} >= set(words[4:])


@pytest.mark.parametrize("gpus", release.COMMANDS)
def test_all_of_a_machine_take_at_most_25_minutes(gpus):
    assert sum(command.seconds for command in release.COMMANDS[gpus]) <= 25 * 60
