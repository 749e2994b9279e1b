"""Tests that a change can reach: by imports, public names, tables of names, and by files that tests read."""

from __future__ import annotations

import ast
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.affected import EVERYTHING, ROOT, UNSEEN, affected, reach, sources, tracked

pytestmark = pytest.mark.usefixtures("processes")

#: Files that import by a name made at run time, or read sources, and what they find is no module of the package, or is found
#: by other means.
ELSEWHERE = {
    "ooc_chol/__init__.py": "its table of public names is read",
    "ooc_chol/apps/__init__.py": "who asks for an application names it",
    "ooc_chol/apps/shared/commands.py": "who has commands names their package",
    "ooc_chol/apps/geostat/data/extras.py": "packages of others",
    "ooc_chol/apps/geostat/covariances/covariance.py": "sources for GPUs alone",
    "ooc_chol/apps/geostat/estimation/vecchia_cuda.py": "sources for GPUs alone",
    "ooc_chol/errors.py": "its table of public names is read",
    "ooc_chol/process/public_names.py": "tables of public names are read",
    "ooc_chol/process/scipy_modules.py": "SciPy",
}


@pytest.mark.parametrize(
    ("changed", "reached", "spared"),
    [
        ("ooc_chol/eigen/lanczos.py", "tests/host/test_eigsh.py", "tests/apps/geostat/test_local.py"),
        ("ooc_chol/apps/geostat/kriging/local_systems.py", "tests/apps/geostat/test_local.py", "tests/host/test_eigsh.py"),
        ("ooc_chol/diff/torch.py", "tests/host/test_diff_torch.py", "tests/host/test_cholesky.py"),
        ("ooc_chol/files/positional_io.py", "tests/host/test_checkpoint.py", "tests/plan/test_affected.py"),
        ("ooc_chol/kernels/cuda/formats.cu", "tests/plan/test_cuda_source.py", "tests/host/test_cholesky.py"),
        ("docs/zarr.md", "tests/host/test_docs.py", "tests/host/test_cholesky.py"),
        ("tests/builders.py", "tests/host/test_cholesky.py", "tests/plan/test_affected.py"),
        ("tests/plan/test_schedule.py", "tests/plan/test_schedule.py", "tests/plan/test_plan.py"),
    ],
)
@pytest.mark.commit
def test_a_change_reaches_its_tests_and_spares_others(changed, reached, spared):
    found = affected([changed])
    assert {changed, reached, spared} <= set(tracked()), "the file has moved: name it anew"
    assert reached in found and spared not in found


@pytest.mark.parametrize("file", EVERYTHING)
@pytest.mark.commit
def test_what_every_test_rests_on_reaches_all(file):
    assert file in tracked() and len(affected([file])) == sum(Path(each).name.startswith("test_") for each in sources())


@pytest.mark.commit
def test_every_import_by_a_made_name_is_listed():
    hidden = {
        file
        for file in sources()
        if file.startswith("ooc_chol/") and "/bench/" not in file and "/cuda/" not in file and _imports_by_name(file)
    }
    assert {file for file in hidden - set(ELSEWHERE) if not any(fnmatch(file, key) for key in UNSEEN)} == set()
    assert set(ELSEWHERE) <= hidden, "it imports by no name any more"


def _imports_by_name(file: str) -> bool:
    text = (ROOT / file).read_text(encoding="utf-8")
    made = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and not _is_literal(node))
    by_name = {"import_module", "importlib.import_module", "__import__"} | ({"files"} if "importlib.resources" in text else set())
    return not {ast.unparse(call.func) for call in made}.isdisjoint(by_name)


def _is_literal(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and ast.unparse(call.func) != "files"


@pytest.mark.commit
def test_every_cuda_source_and_page_is_reached():
    read = set().union(*map(reach, (file for file in sources() if Path(file).name.startswith("test_") and "/cuda/" not in file)))
    assert {file for file in tracked() if file.endswith(".cu") or (file.startswith("docs/") and file.endswith(".md"))} <= read


@pytest.mark.parametrize("file", ["tests/plan/test_schedule.py", "tests/apps/spectral/test_kway.py", "tests/host/test_svds.py"])
def test_no_module_is_imported_that_is_not_reached(file, tmp_path):
    """``sys.modules`` of a process that has run a file of tests holds modules of its reach alone."""
    program = f"""
import sys, pytest
assert pytest.main(["-q", "-p", "no:cacheprovider", {file!r}]) == 0
ours = [module for name, module in sys.modules.items() if name.split(".")[0] in ("ooc_chol", "tests")]
print(*(module.__file__ for module in ours if getattr(module, "__file__", None)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {Path(each).relative_to(ROOT).as_posix() for each in done.stdout.splitlines()[-1].split()}
    imported = {each for each in imported if not each.startswith("tests/inside/")}  # tables, which the fixtures of all look into
    beside = (
        set(EVERYTHING)
        | {each for each in imported if Path(each).name in ("conftest.py", "__init__.py")}
        | {
            "tests/kinds.py",
            "tests/groups.py",
            "tests/cluster_machines.py",
        }
    )
    assert imported - beside - reach(file) == set()
    assert len(imported - beside) > 3
