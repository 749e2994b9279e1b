"""Running what documents show: commands, programs and outputs, in order, as a reader would."""

from __future__ import annotations

import argparse
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks import running
from tests.inside.cli import main

ROOT = Path(__file__).resolve().parents[1]

#: Largest relative difference between a number that a document shows and the one that is printed.
SHOWN = 0.05

NUMBER = r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
#: Lines of an output whose numbers are times of this machine: their words are compared alone.
TIMED = re.compile(r"second|\bms\b|\d s,|FLOP/s|\bk?[MGT]?B/s|exposed|^wall|^\s*host:\d", flags=re.IGNORECASE)

_BLOCK = re.compile(r"^(?:<!-- ([^\n]*?) -->\n)?```([\w{}-]+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
#: What a document writes above a block that no test runs, with the reason behind it.
_ONLY_READ = "not run by the tests: "


class Block(NamedTuple):
    """One block of a document."""

    language: str
    content: str
    is_run: bool


def read(path: Path) -> str:
    """The text of a document."""
    return path.read_text(encoding="utf-8")


def pages() -> list[Path]:
    """Every page of the repository; those that tools leave in folders of their own are none."""
    found = [
        *ROOT.glob("*.md"),
        *ROOT.glob("*/README.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "ooc_chol/apps").glob("*/README.md"),
    ]
    return sorted(page for page in found if not re.search(r"(?:^|/)(?:\.|_build/)", page.relative_to(ROOT).as_posix()))


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a document; directives of the site are none."""
    for mark, language, content in _BLOCK.findall(text):
        if not language.startswith("{"):
            yield Block(language, content, not mark.startswith(_ONLY_READ))


def run_document(text: str, path: Path, capsys: Any) -> str:
    """Run every command and program in order; each line of output shown must be among what was printed before it."""
    printed, names = "", {}
    for block in blocks(text):
        if block.language == "sh":
            for line in block.content.replace("\\\n", "").splitlines():
                run_command(line, is_run=block.is_run)
        elif block.language == "python":
            program = compile(block.content, str(path), "exec")
            if block.is_run:
                exec(program, names)
        elif block.is_run:
            assert block.language == "text", f"{path.name} has a block of {block.language} that nothing runs"
            for line in block.content.splitlines():
                assert is_shown(line, printed), f"{path.name} shows {line!r}, but what was printed is\n{printed}"
        printed += capsys.readouterr().out
    return printed


def run_command(line: str, *, is_run: bool) -> None:
    """Run a line of the shell, or let the parser that it goes to read it."""
    words = shlex.split(line, comments=True)
    if not words:
        return
    program, *words = words
    if [program, *words[:2]] == ["python", "-m", "ooc_chol"]:
        program, words = "ooc-chol", words[2:]
    if program == "ooc-chol":
        assert (main(words) if is_run else parse(words)) == 0, line
    elif [program, *words[:2]] == ["python", "-m", "benchmarks"]:
        assert (running.main(words[2:]) == 0) if is_run else running.parsed(words[2:]), line
    elif program == "make":
        targets = set(re.findall(r"^([\w-]+):", read(ROOT / "Makefile"), flags=re.MULTILINE))
        assert set(words) <= targets, line
    elif program == "python3":
        assert words[:3] == ["-m", "pip", "install"], line
        extras = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
        named = re.fullmatch(r"\.(?:\[([\w,]+)\])?", words[3])
        assert named is not None and set((named[1] or "").split(",")) - {""} <= set(extras), line
    else:
        raise AssertionError(f"nothing reads {line!r}")


def parse(words: Sequence[str]) -> int:
    """Let the command line read ``words`` and do everything but run the command."""
    parse_args = argparse.ArgumentParser.parse_args

    def parsed(self: argparse.ArgumentParser, *arguments: Any) -> argparse.Namespace:
        options = parse_args(self, *arguments)
        options.run = lambda _: 0
        return options

    with mock.patch.object(argparse.ArgumentParser, "parse_args", parsed):
        return main(words)


def is_shown(line: str, printed: str) -> bool:
    """Whether a line of the output is this one, apart from small differences of its numbers and spaces, and from times."""
    words, numbers = _parts(line)
    return any(
        words == other and (TIMED.search(line) is not None or np.allclose(values, numbers, rtol=SHOWN, atol=0.0))
        for other, values in map(_parts, printed.splitlines())
    )


def _parts(line: str) -> tuple[str, list[float]]:
    """The words of a line with a mark for each number, and the numbers."""
    numbers = [float(text.replace(",", "")) for text in re.findall(NUMBER, line)]
    return " ".join(re.sub(NUMBER, "#", line).split()), numbers
