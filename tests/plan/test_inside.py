"""Tests import public names or helpers of ``tests``; what lies inside the package is named by the tables of ``tests/inside``."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.inside import entries_of, names_of

TESTS = Path(__file__).parents[1]
INSIDE = TESTS / "inside"
ROOMS = sorted(path.stem for path in INSIDE.glob("[!_]*.py"))
#: Packages from which their public names are imported.
PUBLIC = (
    "ooc_chol",
    "ooc_chol.apps",
    "ooc_chol.apps.geostat",
    "ooc_chol.apps.imputation",
    "ooc_chol.apps.spectral",
    "ooc_chol.diff",
    "ooc_chol.diff.jax",
    "ooc_chol.diff.torch",
    "ooc_chol.errors",
    "ooc_chol.rates",
    "ooc_chol.testing",
    "ooc_chol.toolbox",
    "ooc_chol.tracing",
)
#: Where a text that names a module is what is tested: which modules a command or the package imports, or has stand-ins for.
NAMED_IN_TEXT = {
    "tests/host/test_cli.py": 2,
    "tests/host/test_cudss_solver.py": 1,
    "tests/host/test_signals.py": 2,
    "tests/plan/test_cuda_sweep_cuts.py": 2,
    "tests/plan/test_documents.py": 1,
    "tests/plan/test_import.py": 9,
}
_NAMES = r"\w+(?: as \w+)?"
_IMPORT = re.compile(rf"\bfrom tests\.inside\.(\w+) import ({_NAMES}(?:, {_NAMES})*)")


# the package and the tests, read and not imported


def _path(module: str) -> Path | None:
    """The file of a module, or its folder where that has only sources."""
    base = TESTS.parent.joinpath(*module.split("."))
    return next((path for path in (base / "__init__.py", base.with_suffix(".py"), base) if path.exists()), None)


@cache
def _bound(module: str) -> set[str]:
    """Names that a module binds at its top."""
    path = _path(module)
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))] if path is not None and path.is_file() else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        else:
            waiting += ast.iter_child_nodes(node)
    return found


def _is_internal(module: str, name: str | None = None) -> bool:
    """Tell what is, or lies in, a module of the package that is not public."""
    if module.split(".")[0] != "ooc_chol":
        return False
    if name is None or module not in PUBLIC:
        return module not in PUBLIC
    inner = f"{module}.{name}"
    return name not in _bound(module) and inner not in PUBLIC and _path(inner) is not None


def _internals(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    """Internals of the package that an import, or an attribute of a public package, names."""
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{each.name}" for each in node.names if _is_internal(node.module or "", each.name))
    elif isinstance(node, ast.Import):
        yield from (each.name for each in node.names if _is_internal(each.name))
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
        module = names[node.value.id]
        if _is_internal(module, node.attr):
            yield f"{module}.{node.attr}"


def _packages(nodes: list[ast.AST]) -> dict[str, str]:
    """Public packages that a file imports, by the names that it has for them."""
    imports = [(f"{n.module}.{a.name}", a) for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names]
    imports += [(a.name, a) for n in nodes if isinstance(n, ast.Import) for a in n.names]
    return {alias.asname or alias.name: module for module, alias in imports if module in PUBLIC}


def _named(text: str) -> Iterator[str]:
    """Internal modules that a text names."""
    for name in re.findall(r"\booc_chol(?:\.\w+)+", text):
        parts = name.split(".")
        while _path(".".join(parts)) is None:
            parts.pop()
        if _is_internal(".".join(parts)):
            yield name


@cache
def _scan() -> tuple[list[str], Counter[str], set[tuple[str, str]]]:
    """Imports of internals, how many texts of a file name some, and which entries of the tables are used."""
    imports, texts, used = [], Counter[str](), set()
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.parent == INSIDE or path == Path(__file__) or not ("ooc_chol" in text or "tests.inside" in text):
            continue
        file = path.relative_to(TESTS.parent).as_posix()
        nodes = list(ast.walk(ast.parse(text)))
        packages, said = _packages(nodes), {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
        for node in nodes:
            imports += [f"{file}:{node.lineno}: {name}" for name in _internals(node, packages)]
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                texts[file] += len(list(_named(node.value)))
        for room, names in _IMPORT.findall(re.sub(r"\(\s*|,?\s*\)", "", re.sub(r",\s+", ", ", text))):
            used |= {(room, name.split(" as ")[0]) for name in names.split(", ")}
        used |= set(re.findall(r'\bimported\("(\w+)", "(\w+)"\)', text))
    return imports, +texts, used


# the rule


def test_no_test_imports_what_is_inside():
    imports, texts, _ = _scan()
    entries = sum(len(entries_of(room)) for room in ROOMS)
    print(f"imports of internals: {len(imports)}; texts that name some: {sum(texts.values())}; entries of tables: {entries}")
    assert imports == [], "import a public name, or add the name to the table of its room in tests/inside"
    assert texts == NAMED_IN_TEXT


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from ooc_chol.api.cholesky import cholesky", ["ooc_chol.api.cholesky.cholesky"]),
        ("def f():\n    from ooc_chol.process import address_space", ["ooc_chol.process.address_space"]),
        ("import ooc_chol.api.cholesky as d", ["ooc_chol.api.cholesky"]),
        ("import ooc_chol as oc\noc.memory.sources.npy_layout", ["ooc_chol.memory"]),
        ("from ooc_chol import diff\ndiff.factors.CACHE", ["ooc_chol.diff.factors"]),
        ("import ooc_chol as oc\nfrom ooc_chol import cholesky, diff\noc.plan, oc.diff.solve", []),
        ("from ooc_chol.apps import geostat\nfrom ooc_chol.errors import TierError\ngeostat.fit", []),
    ],
)
def test_the_scan_finds_what_is_inside(code, expected):
    nodes = list(ast.walk(ast.parse(code)))
    assert [name for node in nodes for name in _internals(node, _packages(nodes))] == expected


@pytest.mark.parametrize("room", ROOMS)
def test_every_entry_is_there(room):
    """Read and not imported: some need CuPy."""
    for key, (module, name) in entries_of(room).items():
        assert _path(module) is not None and (name is None or name in _bound(module)), f"{key}: {module} has no {name}"


@pytest.mark.parametrize("room", ROOMS)
def test_every_entry_is_used_and_has_one_name(room):
    entries = entries_of(room)
    assert set(entries) == {key for where, key in _scan()[2] if where == room}
    assert len(set(entries.values())) == len(entries)


# looking up


@pytest.mark.host
@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_a_room_imports_nothing_but_what_is_asked_for():
    code = (
        "import sys\nfrom importlib import import_module\n"
        f"for room in {ROOMS}: import_module(f'tests.inside.{{room}}')\n"
        "from tests.inside import imported\nassert imported('ground', 'cache_directory') is None\n"
        "assert not [name for name in sys.modules if name.startswith(('ooc_chol', 'numpy'))]\n"
        "from tests.inside.ground import cache_directory\n"
        "assert imported('ground', 'cache_directory') is cache_directory\n"
        "assert 'ooc_chol.config' in sys.modules and 'ooc_chol.dense' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_entry_is_what_its_module_has_now(monkeypatch):
    look = names_of("a room", {"tests.tolerances": ("SOLVE_C as most",)}, {"bounds": "tests.tolerances"})
    monkeypatch.setattr(look("bounds"), "SOLVE_C", "another")
    assert look("most") == "another"
    with pytest.raises(AttributeError, match="module 'a room' has no attribute 'least'"):
        look("least")
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from tests.inside.dense import no_such_name")
