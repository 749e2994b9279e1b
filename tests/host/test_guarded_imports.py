"""Packages that are imported when they are needed: where the system refuses memory for them, a BudgetError says so."""

from __future__ import annotations

import ast
import errno
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ooc_chol as oc
from tests.host.runs import COMMAND, ENVIRONMENT
from tests.inside.process import WITH_LINALG, room
from tests.public import MODULES

pytestmark = pytest.mark.usefixtures("no_hang")

PACKAGE = Path(oc.__file__).parent
#: What is there once the package is: all else is imported under the guard.
THERE = {*sys.stdlib_module_names, "ooc_chol", "numpy", "ml_dtypes", "threadpoolctl", "xxhash", "tqdm", "perfetto"}
#: Files whose imports are of other kinds: benchmarks, and adapters of frameworks that are there when they are used.
OTHERS = ("bench/", "kernels/cuda/", "hardware/cuda/", "diff/torch", "diff/jax")
#: Calls of ``import_module`` for what is there: modules of the package's own for CUDA, and Dask's beside a client.
OWN_CALLS = {
    ("cluster/lazy_columns.py", "'dask.array'"),
    ("cluster/lazy_columns.py", "'dask'"),
    ("cluster/opening.py", "'dask'"),
    ("cluster/solving.py", "'dask'"),
    ("diff/triangular.py", "'scipy.sparse.linalg._dsolve._superlu'"),
    ("apps/__init__.py", "f'{__name__}.{name}'"),
    ("__init__.py", "f'{__name__}.{name}'"),
    ("errors.py", "f'ooc_chol.{_MODULE_OF[name]}'"),
}


def unguarded(node: ast.AST, *, is_inside: bool = False, is_guarded: bool = False) -> list[str]:
    """Packages that functions import, and modules that ``import_module`` does, outside of ``with guarded_imports()``."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return []
    is_inside = is_inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(node, ast.With):
        is_guarded = is_guarded or any("guarded_imports(" in ast.unparse(each.context_expr) for each in node.items)
    found: list[str] = []
    if not is_guarded:
        if is_inside and isinstance(node, ast.Import):
            found = [each.name for each in node.names if each.name.partition(".")[0] not in THERE]
        elif is_inside and isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            found = [node.module] if node.module.partition(".")[0] not in THERE else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found = [ast.unparse(node.args[0])]
    for child in ast.iter_child_nodes(node):
        found += unguarded(child, is_inside=is_inside, is_guarded=is_guarded)
    return found


def test_what_functions_import_is_under_the_guard():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(OTHERS):
            each = unguarded(ast.parse(path.read_text(encoding="utf-8")))
            found |= {(name, what) for what in each if "kernels.cuda" not in what and name != "process/scipy_modules.py"}
    assert found - OWN_CALLS == set()


def test_the_scan_finds_what_is_not():
    code = (
        "def f():\n    import scipy.io\n    with guarded_imports():\n        import scipy.fft\nimport_module(name)\nimport scipy"
    )
    assert unguarded(ast.parse(code)) == ["scipy.io", "name"]


@pytest.mark.usefixtures("processes")
def test_names_whose_modules_load_blas_are_looked_after():
    """Each module of a public name, in a child that has imported nothing else."""
    tables = (oc, *(getattr(oc, name) for name in MODULES))
    modules = sorted({module for table in tables for module in getattr(table, "_MODULE_OF", {}).values()} | {"diff"})
    code = (
        "import os, sys, importlib, scipy.sparse, ooc_chol\nooc_chol.cholesky, ooc_chol.multiply\n"
        "assert 'scipy.linalg' not in sys.modules\n"
        f"for module in {modules}:\n"
        "    if os.fork() == 0:\n"
        "        importlib.import_module(f'ooc_chol.{module}')\n"
        "        print(module if 'scipy.linalg' in sys.modules else '', flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    done = subprocess.run([COMMAND[0], "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert len(found) > 5
    assert [module for module in found if not module.startswith(WITH_LINALG)] == []


ERRORS = [
    ImportError("lib.so: failed to map segment from shared object"),
    ImportError("lib.so: cannot allocate memory in static TLS block"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    MemoryError(),
    SystemError("error return without exception set"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_refused_memory_is_a_budget_error(error, monkeypatch):
    monkeypatch.setattr(room, "tightest_limit", lambda: room.Limit("RLIMIT_AS (ulimit -v)", 1000))
    with pytest.raises(oc.BudgetError, match=r"package.*RLIMIT_AS") as raised, room.guarded_imports():
        raise error
    assert raised.value.__cause__ is error
    with pytest.raises(oc.BudgetError), room.guarded_imports():  # as SciPy may tell it
        raise ImportError("the extension is broken") from error


@pytest.mark.parametrize(
    "error", [ImportError("No module named 'x'"), SystemError("a bug"), OSError(errno.ENOENT, "x")], ids=repr
)
def test_other_errors_stay(error, monkeypatch):
    monkeypatch.setattr(room, "tightest_limit", lambda: None)
    with pytest.raises(type(error)) as raised, room.guarded_imports():
        raise error
    assert raised.value is error


#: Calls under a limit of address space.
CALLS = {
    "svds": "oc.svds(scipy.sparse.eye_array(40, format='csr'), k=2, devices='host:0')",
    "eigsh": "oc.eigsh(scipy.sparse.diags_array(numpy.arange(1.0, 41), format='csr'), k=2, devices='host:0')",
    "bisect": "importlib.import_module('ooc_chol.apps').spectral.bisect(scipy.sparse.csr_array(numpy.ones((9, 9))))",
    "fit": "importlib.import_module('ooc_chol.apps').geostat.fit(1, smoothness=1.5)",
    "diff": "oc.diff.solve",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("mib", [20, 60, 90])
@pytest.mark.usefixtures("processes")
def test_a_limit_of_memory_is_told_by_whatever_meets_it(call, mib):
    """The limit is set when SciPy's matrices are there, and what calls need beside them is not."""
    code = (
        "import importlib, resource, numpy, scipy.sparse, ooc_chol as oc\noc.toolbox.check_room\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (used + ({mib} << 20),) * 2)\n"
        f"try: {CALLS[call]}\n"
        "except oc.BudgetError as error: print('RLIMIT_AS' in str(error))\n"
    )
    environment = {**ENVIRONMENT, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([COMMAND[0], "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_an_application_is_an_attribute_of_their_package():
    apps = import_module("ooc_chol.apps")
    assert apps.imputation.__name__ == "ooc_chol.apps.imputation"
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = apps.other
