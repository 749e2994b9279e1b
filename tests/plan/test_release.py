"""The measurements of a release: commands that there are, within their time."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from fnmatch import fnmatch

import pytest

from benchmarks import quote, release
from benchmarks.running import RESULTS, ROOT, parsed
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
        assert {case.name for case in suites.SUITES[words[2]]} >= {path.stem for path in release.files_of(command.words)}


@pytest.mark.parametrize("gpus", release.COMMANDS)
def test_all_of_a_machine_take_at_most_25_minutes(gpus):
    assert sum(command.seconds for command in release.COMMANDS[gpus]) <= 25 * 60


@pytest.fixture
def quoted(monkeypatch) -> set[str]:
    """Names of the result files that figures on pages are taken from."""
    found, read = set(), quote.result.__wrapped__

    def result(name):
        found.add(name)
        return read(name)

    monkeypatch.setattr(quote, "result", result)
    list(quote.quotes())
    return found


@pytest.fixture
def written() -> Counter[str]:
    """Names of the result files of a release, and how many commands write each."""
    files = (path for _, command in EVERY for path in release.files_of(command.words))
    return Counter(path.relative_to(RESULTS).with_suffix("").as_posix() for path in files)


def test_a_file_that_pages_quote_is_written_by_one_command_or_told_why_not(quoted, written):
    told = {name: [pattern for pattern in release.OTHERS if fnmatch(name, pattern)] for name in quoted}
    assert {name: why for name, why in told.items() if written[name] + len(why) != 1} == {}
    assert {pattern for why in told.values() for pattern in why} == set(release.OTHERS)


def test_a_file_that_is_written_is_quoted_by_a_page(quoted, written):
    pages = (path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    linked = {name for page in pages for name in re.findall(r"benchmarks/results/([\w/-]+)\.json", page)}
    assert set(written) - quoted - linked == set()
    assert {name: count for name, count in written.items() if count > 1} == {}
