"""Files of tests that a change can reach: ``python -m tests.affected`` prints them, for what differs from the branch main.

A file reaches what it imports, anywhere in it; a public name ``oc.x`` or ``tb.x`` is where it is defined. What is imported or
read by a name that is made at run time is in ``UNSEEN``.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from tests.inside import entries_of
from tests.public import MODULES, module_of, written_out

ROOT = Path(__file__).resolve().parents[1]
#: Packages whose files reach what they import.
PACKAGES = ("benchmarks", "ooc_chol", "tests")

#: This file, in whose tables names stand.
OWN = "tests/affected.py"
#: Names in files as of the last call.
KEPT = ROOT / ".pytest_cache" / "names.json"
#: What a file reaches by names that are made at run time: patterns of files, as ``fnmatch`` has them.
UNSEEN: dict[str, tuple[str, ...]] = {
    # tables of names, whose modules are imported when they are asked for; who asks for an application names it
    "ooc_chol/apps/geostat/cli/parser.py": ("ooc_chol/apps/geostat/cli/*.py",),
    "ooc_chol/diff/__init__.py": ("ooc_chol/diff/*.py",),
    "ooc_chol/apps/spectral/cli/commands/__init__.py": ("ooc_chol/apps/spectral/cli/*.py",),
    "ooc_chol/apps/imputation/__init__.py": ("ooc_chol/apps/imputation/*.py",),
    "ooc_chol/apps/imputation/cli/__init__.py": ("ooc_chol/apps/imputation/cli/*.py",),
    "ooc_chol/apps/spectral/__init__.py": ("ooc_chol/apps/spectral/*.py",),
    # sources of CUDA, which tests on the host compile, and what the registry imports where there is a GPU
    "tests/cuda/test_*.py": ("ooc_chol/*/cuda/*", "ooc_chol/*.cu"),
    "tests/plan/test_cuda_*.py": ("ooc_chol/*.cu",),
    "tests/plan/test_residue*.py": ("ooc_chol/*.cu", "benchmarks/*.cu"),
    "tests/emulated_cuda.py": ("ooc_chol/*.cu",),
    "tests/apps/geostat/test_*_cuda.py": ("ooc_chol/apps/geostat/*.cu",),
    "tests/host/test_bench_paper.py": ("ooc_chol/*.cu",),
    # tests that read the package
    "tests/host/test_docs.py": ("ooc_chol/*", "benchmarks/*.py"),
    "tests/host/test_readme.py": ("benchmarks/*.py",),
    "tests/apps/geostat/test_documents.py": ("benchmarks/*.py",),
    "tests/plan/test_repository.py": ("*",),
    "tests/plan/test_layers.py": ("ooc_chol/*.py",),
}
#: What runs a command by its words, and the commands that tests of a folder run; those of an application run its own.
COMMAND = "ooc_chol/cli/command.py"
COMMANDS = {
    "tests/apps/geostat/": ("ooc_chol/apps/geostat/cli/*.py",),
    "tests/apps/imputation/": ("ooc_chol/apps/imputation/cli/*.py",),
    "tests/apps/spectral/": ("ooc_chol/apps/spectral/cli/*.py",),
    "tests/": ("ooc_chol/cli/*.py", "ooc_chol/bench/commands.py", "ooc_chol/apps/*/cli/*.py"),
}
#: Lists of public names.
LISTS = tuple(f"ooc_chol/{name}.py" for name in MODULES)
#: Folders and files of which a test reads, or runs, what it names in a string.
READ = ("docs", "examples", "benchmarks", "traces", "README.md", "CHANGELOG.md", "changes", "CONTRIBUTING.md", "Makefile", ".ci")
#: Files on which every test rests.
EVERYTHING = (
    *("tests/conftest.py", "tests/kinds.py", "tests/tolerances.py", "pyproject.toml"),
    *("ooc_chol/__init__.py", "ooc_chol/process/public_names.py"),
)


def affected(changed: Iterable[str]) -> list[str]:
    """Files of tests that reach one of these files."""
    changed = set(changed)
    tests = sorted(file for file in sources() if file.startswith("tests/") and Path(file).name.startswith("test_"))
    if not changed.isdisjoint(EVERYTHING):
        return tests
    return [test for test in tests if not changed.isdisjoint(reach(test).union(_conftests(test)))]


def reach(file: str) -> set[str]:
    """All that a file reaches, itself included."""
    found = _closure([file], set())
    if COMMAND in found:
        patterns = next((patterns for folder, patterns in COMMANDS.items() if file.startswith(folder)), ())
        found = _closure([each for each in tracked() if any(fnmatch(each, pattern) for pattern in patterns)], found)
    return found


def _closure(todo: list[str], found: set[str]) -> set[str]:
    while todo:
        if (at := todo.pop()) not in found:
            found.add(at)
            todo += edges().get(at, ())
    return found


@cache
def edges() -> Mapping[str, frozenset[str]]:
    """Names in each file, by itself."""
    return {file: frozenset(_seen(names)).union(_unseen(file)) for file, names in sources().items()}


@cache
def sources() -> Mapping[str, list[str]]:
    """Files of package, benchmarks and tests, and the names in them; of files that have not changed they are in ``KEPT``."""
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    found, own = {}, Path(__file__).read_text(encoding="utf-8")
    for file in tracked():
        if file.endswith(".py") and file.split("/")[0] in PACKAGES:
            text = (ROOT / file).read_text(encoding="utf-8")
            digest = hashlib.sha256((own + text).encode()).hexdigest()
            found[file] = (
                kept[file] if file in kept and kept[file][0] == digest else [digest, *sorted(set(_names_in(file, text)))]
            )
    if found != kept:
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(found), encoding="utf-8")
    return {file: names[1:] for file, names in found.items()}


@cache
def tracked() -> tuple[str, ...]:
    """Files of the repository that are there, those not yet added included."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard")
    return tuple(each for each in listed if (ROOT / each).is_file())


def changed_since(revision: str) -> list[str]:
    """Files that differ from those of a revision, added and removed ones included."""
    return sorted({*_git("diff", "--name-only", revision), *_git("ls-files", "--others", "--exclude-standard")})


def _names_in(file: str, text: str) -> Iterator[str]:
    """Modules and public names (``oc.name``) in a file, in code and in strings; commands are in ``COMMANDS``."""
    tree = ast.parse(text)
    if file in LISTS:  # whose names are imported when they are asked for
        tree.body = [node for node in tree.body if not isinstance(node, ast.If)]
    for node in tree.body if file == COMMAND else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (name := written_out(node)) is not None:
            yield name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith("ooc_chol.") and not file.startswith("tests/inside/"):
                yield node.value.partition(":")[0]  # a name to patch, or a row of a table
            elif (first := node.value.partition("/")[0]) in READ and file.startswith("tests/") and file != OWN:
                yield f"{first}/"


def _seen(names: Iterable[str]) -> Iterator[str]:
    """Files that these names lead to."""
    for name in names:
        if name.startswith("tests.inside.") and name.count(".") == 3:
            room, key = name.split(".")[2:]
            yield from _module(".".join(filter(None, _rooms(room).get(key, ()))))
        if name.endswith("/"):
            yield from (each for each in tracked() if each == name[:-1] or each.startswith(name))
            continue
        yield from _module(name)
        if (module := module_of(name)) is not None:
            yield from _module(module)


def _unseen(file: str) -> Iterator[str]:
    patterns = [pattern for key, patterns in UNSEEN.items() if fnmatch(file, key) for pattern in patterns]
    yield from (each for each in tracked() if any(fnmatch(each, pattern) for pattern in patterns))


def _module(name: str) -> Iterator[str]:
    """Files that importing a module runs, but for the one of the package, which imports nothing."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        return
    for length in range(2, len(parts) + 1):
        path = "/".join(parts[:length])
        yield from (each for each in (f"{path}.py", f"{path}/__init__.py") if each in _names())


@cache
def _rooms(room: str) -> Mapping[str, tuple[str, str | None]]:
    """Entries of a table of ``tests/inside``, by which tests name what lies in the package."""
    return entries_of(room)


@cache
def _names() -> frozenset[str]:
    return frozenset(tracked())


def _conftests(file: str) -> Iterator[str]:
    yield from (f"{folder}/conftest.py" for folder in map(str, Path(file).parents) if f"{folder}/conftest.py" in _names())


def _git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def main() -> None:
    """Print files of tests, and on standard error what no test reaches."""
    parser = argparse.ArgumentParser(prog="python -m tests.affected", description=__doc__)
    parser.add_argument("--since", metavar="REVISION", default="main")
    parser.add_argument("changed", nargs="*", help="these files in place of those that differ")
    given = parser.parse_args()
    changed = given.changed or changed_since(given.since)
    found = affected(changed)
    reached = set().union(*map(reach, found)) if found else set[str]()
    if missed := [each for each in changed if each not in reached and each not in EVERYTHING]:
        print(f"no test reaches {', '.join(missed)}", file=sys.stderr)
    print("\n".join(found))


if __name__ == "__main__":
    main()
