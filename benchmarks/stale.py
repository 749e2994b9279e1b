"""Results that are older than a change of the code that they measure.

``ROOMS`` has the rooms of the package that a folder of results measures. A result is as old as the commit that it holds, or,
where that is not said or not in this repository, as the commit that brought its file. What changed in its rooms since is
counted in commits, but for those whose subject begins with ``docs:``, and the newest is named: whether it changes a figure, a
reader judges. Code of CUDA does not count for results of the host, whose names say ``host``.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.running import RESULTS, ROOT, Options, Parser

_DENSE = ("dense", "hardware", "kernels", "memory", "precision", "schedulers", "tasks")
_SPARSE = ("hardware", "kernels", "memory", "runtime", "sparse")
#: Rooms of the package that the results of a folder measure; "." is those at the top.
ROOMS = {
    **dict.fromkeys((".", "certificate", "checkpoints", "disk", "house", "mixed_families", "paper", "planning"), _DENSE),
    **dict.fromkeys(("certified", "types", "wall"), ("api", *_DENSE)),
    "cluster": ("cluster", *_DENSE),
    "diff": ("diff",),
    "eigen": ("eigen", *_SPARSE),
    "geostat": ("apps/geostat", *_DENSE),
    "imputation": ("apps/imputation", "kernels", "tensors"),
    "residue_rates": ("kernels",),
    "several_gpus": ("apps/geostat", "eigen", "sparse", "tensors", *_DENSE),
    "sparse": ("eigen", *_SPARSE),
    "spectral": ("apps/spectral", "eigen", *_SPARSE),
    "systems": ("apps/imputation", "apps/spectral", "diff", "eigen", "tensors", *_SPARSE),
    "tensors": ("hardware", "kernels", "tensors"),
}


class Change(NamedTuple):
    """A commit."""

    commit: str
    date: str
    subject: str


class Age(NamedTuple):
    """A result, what it is as old as, and what changed in its rooms since, the newest first."""

    path: Path
    commit: str | None
    is_own: bool
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        if self.commit is None:
            return f"     ?  {self.path}  is in no commit"
        newest = self.changes[0]
        since = self.commit[:8] if self.is_own else f"{self.commit[:8]}, which brought the file"
        return f"{len(self.changes):6}  {self.path}  since {since}; the newest {newest.date}: {newest.subject}"


class History:
    """The history of a repository, as git tells it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.since = cache(self._since)

    def _git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"git {words[0]} in {self.root}: {done.stderr.strip()}")
        return done.stdout

    def has(self, commit: str) -> bool:
        """True for a commit that the present one comes from."""
        words = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
        return subprocess.run(words, cwd=self.root, capture_output=True).returncode == 0

    def brought(self, path: Path) -> str | None:
        """The last commit that changed a file."""
        return self._git("log", "-1", "--format=%H", "--", str(path)).strip() or None

    def _since(self, commit: str, paths: tuple[str, ...]) -> tuple[Change, ...]:
        """Commits behind this one that changed these paths, and more than docstrings, the newest first."""
        told = self._git("log", "--format=%H%x00%cs%x00%s", f"{commit}..HEAD", "--", *paths)
        found = (Change(*line.split("\0", 2)) for line in told.splitlines())
        return tuple(each for each in found if not each.subject.startswith("docs:"))


def measured_paths(folder: str, *, on_host: bool) -> tuple[str, ...]:
    """The paths of git that the results of a folder measure."""
    without = (":(exclude)ooc_chol/*/cuda/*", ":(exclude)*.cu") if on_host else ()
    return (*(f"ooc_chol/{room}" for room in ROOMS[folder]), *without)


def commit_of(path: Path) -> str | None:
    """The commit that a result holds, in its head or in its first line."""
    text = path.read_text(encoding="utf-8")
    content = json.loads(text.partition("\n")[0] if path.suffix == ".jsonl" else text)
    found = content.get("commit") if isinstance(content, dict) else None
    return found if isinstance(found, str) and re.fullmatch("[0-9a-f]{7,40}", found) else None


def ages(root: Path = ROOT, results: Path = RESULTS) -> Iterator[Age]:
    """Each result with what changed in its rooms since."""
    history = History(root)
    for path in sorted((*results.rglob("*.json"), *results.rglob("*.jsonl"))):
        own, shown = commit_of(path), path.relative_to(results)
        if shown.parent.as_posix() == "release":  # what ran, and no figures
            continue
        is_own = own is not None and history.has(own)
        commit = own if is_own else history.brought(path)
        on_host = re.search(r"(?:^|-)host(?:-|$)", path.stem) is not None
        paths = measured_paths(shown.parent.as_posix(), on_host=on_host)
        yield Age(shown, commit, is_own, () if commit is None else history.since(commit, paths))


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--least", type=int, default=1, metavar="COUNT", help="only those with so many changes (default: 1)")


def run(options: Options) -> None:
    """Print the results with changes, those with most first."""
    found = list(ages())
    old = [each for each in found if each.commit is None or len(each.changes) >= max(1, options.least)]
    for each in sorted(old, key=lambda each: (-len(each.changes), each.path)):
        print(each)
    print(f"{len(old)} of {len(found)} results are older than {options.least} or more changes of the code that they measure")
