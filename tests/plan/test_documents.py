"""Documents name what exists: folders, modules and dotted names of the package, files of tests and benchmarks."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import ooc_chol
from tests.documents import ROOT, pages, read

PACKAGE = Path(ooc_chol.__file__).parent
#: Parts that are gone, by names that mean nothing else in a document: who writes one of them names what was there once.
FORMER = {"driver", "machine", "mixed", "planner", "planning", "running", "symmetric", "tiling"}
FORMER |= {"blas_buffers", "forked", "installation", "progress_bar", "scipy_modules"}
#: Parts of the package that a dotted name may begin with, now or once.
PARTS = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"} - {"__init__", "__pycache__"} | FORMER
FOLDERS = {path.name for path in PACKAGE.iterdir() if path.is_dir()} | FORMER
CODE = {".py", ".cu", ".toml"}


def documents() -> list[Path]:
    """Pages about what is here now: no changelog, and no decision that another one replaces."""
    return [page for page in pages() if page.name != "CHANGELOG.md" and "**Status:** replaced" not in read(page)]


def named(text: str) -> list[str]:
    """What stands in backticks, without blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def is_path(name: str) -> bool:
    """Whether a name is that of a folder or a file of code of this repository."""
    return re.fullmatch(r"[\w./-]+", name) is not None and (
        (Path(name).suffix in CODE) or (name.endswith("/") and name.split("/")[0] in {*FOLDERS, "ooc_chol", "tests", "docs"})
    )


def is_there(name: str) -> bool:
    """Whether a path leads somewhere, from the root or from the package; a file's name alone is one of the repository's files."""
    if "/" in name:
        return (ROOT / name).exists() or (PACKAGE / name).exists()
    return any(any((ROOT / folder).rglob(name)) for folder in ("ooc_chol", "tests", "benchmarks")) or (ROOT / name).exists()


def is_dotted(name: str) -> bool:
    """Whether a name is one of the package: ``ooc_chol.a.b``, or ``a.b`` with a part of the package first."""
    first, *others = name.split(".")
    return re.fullmatch(r"\w+(\.\w+)+", name) is not None and (first == "ooc_chol" or first in PARTS) and bool(others)


def resolves(name: str) -> bool:
    """Whether a dotted name can be imported, or is an attribute of what can be."""
    parts = name.removeprefix("ooc_chol.").split(".")
    for end in range(len(parts), -1, -1):
        try:
            found = importlib.import_module(".".join(["ooc_chol", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("foreign", "processes")  # a package of CUDA asks ldconfig for a library
@pytest.mark.commit
def test_paths_and_names_of_the_package_exist(page):
    names = named(read(page))
    missing = [name for name in names if is_path(name) and not is_there(name)]
    missing += [name for name in names if is_dotted(name) and not is_path(name) and not resolves(name)]
    assert missing == []


def test_what_is_not_there_is_found_out():
    paths, dotted = ["ooc_chol/nowhere/", "nowhere.py", "planning/"], ["ooc_chol.hardware.nowhere", "planning.simulate"]
    names = [*paths, *dotted]
    assert named(", ".join(f"`{name}`" for name in names) + "\n\n```\n`in_a_block.py`\n```\n") == names
    assert [name for name in names if is_path(name)] == paths and not any(map(is_there, paths))
    assert [name for name in names if is_dotted(name) and not is_path(name)] == dotted and not any(map(resolves, dotted))
    assert is_there("ooc_chol/dense/") and is_there("replay.py") and is_there("kernels/cuda/potrf.cu")
    assert resolves("ooc_chol.cholesky") and resolves("hardware.registry.open_device") and resolves("formats.FORMATS")


def test_documents_name_enough_to_be_worth_a_look():
    names = [name for page in documents() for name in named(read(page))]
    assert sum(map(is_path, names)) > 100 and sum(map(is_dotted, names)) > 5
