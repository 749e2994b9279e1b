"""Contracts beside those of ``pyproject.toml``: no circles, few modules outside of folders, and short front doors."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import ooc_chol
from tests.public import MODULES, module_of, written_out

ROOT = Path(ooc_chol.__file__).parents[1]
#: Modules that may lie directly in the package, beside ``__init__`` and ``__main__``, which Python names, and lists of names.
MOST_LOOSE = 4
#: Lines of code that a front door may have, beside imports and docstrings: it says which way a call goes, and goes none itself.
MOST_OF_A_DOOR = 120
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


@cache
def imports(root: Path = ROOT) -> dict[str, set[str]]:
    """Imports of each module of a package from that package, within functions too, other than for type checkers."""
    files = {_module(path.relative_to(root)): path for path in sorted(root.glob("ooc_chol/**/*.py"))}
    return {
        name: set(_imported(ast.parse(path.read_text(encoding="utf-8")), set(files))) - {name} for name, path in files.items()
    }


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.AST, modules: set[str]) -> Iterator[str]:
    """Modules that a file names: in imports, as ``oc.name``, and as texts for ``import_module``."""
    for node in _run(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [_place_of(node.module or "", alias.name, modules) for alias in node.names]
        elif (name := written_out(node)) is not None:
            names = [_place_of(*name.rsplit(".", 1), modules)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [each.value for each in node.args if isinstance(each, ast.Constant)]
        yield from modules.intersection(names) - {"ooc_chol"}  # which imports nothing by itself


def _place_of(module: str, name: str, modules: set[str]) -> str:
    """The module that a name of a module leads to: one below it, the module itself, or for public names what their table says."""
    below = module_of(f"{module}.{name}") or f"{module}.{name}"
    return below if below in modules else module


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """All that runs at some time."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from (other, *_run(other))
        else:
            yield child
            yield from _run(child)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of a graph; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def siblings(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The files and folders of each folder, and which of them has a module that imports one of another."""
    found: dict[str, set[str]] = {}
    for module, others in graph.items():
        for other in others:
            ours, theirs = module.split("."), other.split(".")
            common = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
            if common is not None:  # else one is the package of the other
                found.setdefault(".".join(ours[: common + 1]), set()).add(".".join(theirs[: common + 1]))
    return found


def test_no_file_imports_itself_by_way_of_others():
    assert circle(imports()) == [], "let what both need be a file below both, or hand it over"


def test_no_folder_imports_itself_by_way_of_its_siblings():
    assert circle(siblings(imports())) == [], "one of them is above the other"


def test_few_modules_lie_outside_of_folders():
    loose = {path.name for path in (ROOT / "ooc_chol").glob("*.py")} - {"__init__.py", "__main__.py"}
    loose -= {f"{name}.py" for name in MODULES}
    assert len(loose) <= MOST_LOOSE, f"give a new module a folder; outside of folders lie {sorted(loose)}"


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor comments, of no docstring and no import."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    beside = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    beside += [node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    left_out = {line for node in beside for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    with tokenize.open(path) as file:
        tokens = [token for token in tokenize.generate_tokens(file.readline) if token.type not in _NO_CODE]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - left_out)


@pytest.mark.parametrize("door", sorted((ROOT / "ooc_chol" / "api").glob("*.py")), ids=lambda path: path.name)
def test_a_front_door_is_short(door):
    assert lines_of_code(door) < MOST_OF_A_DOOR, "what is done for a call stands in the folder of its system"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("import ooc_chol.b", "from ooc_chol import a", True),
        ("from ooc_chol.b import f", "def g():\n    from ooc_chol.a import f", True),
        ("from ooc_chol.b import f", "import_module('ooc_chol.a')", True),
        ("from ooc_chol.b import f", "if TYPE_CHECKING:\n    from ooc_chol.a import f\nelse:\n    import ooc_chol.a", True),
        ("from ooc_chol.b import f", "if TYPE_CHECKING:\n    from ooc_chol.a import f", False),
        ("from ooc_chol.b import f", "import ooc_chol as oc\noc.c", False),
    ],
)
def test_a_circle_is_found(tmp_path, a, b, expected):
    folder = tmp_path / "ooc_chol"
    folder.mkdir()
    for name, code in {"__init__": "", "a": a, "b": b, "c": ""}.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    assert bool(circle(imports(tmp_path))) is expected


def test_a_public_name_is_an_import_of_its_module(tmp_path):
    module = f"ooc_chol.{ooc_chol._MODULE_OF['block_csr']}"
    folder, _, name = module.rpartition(".")
    files = {name: f"from {folder} import below", "below": "import ooc_chol as oc\noc.block_csr"}
    for file, code in files.items():
        path = tmp_path.joinpath(*folder.split("."), f"{file}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    assert set(circle(imports(tmp_path))) == {module, f"{folder}.below"}


def test_lines_of_code_are_counted(tmp_path):
    path = tmp_path / "door.py"
    path.write_text(
        '"""A door.\n\nIt opens.\n"""\nimport os\n\n# to\nX = (\n    1,\n)\ndef f():\n    """Say."""\n    return X\n',
        encoding="utf-8",
    )
    assert lines_of_code(path) == 5


def test_a_circle_of_folders_is_one_of_their_files():
    graph = {"p.a.one": {"p.b.one"}, "p.b.two": {"p.a.two"}, "p.a.two": set(), "p.b.one": set()}
    assert circle(graph) == [] and set(circle(siblings(graph))) == {"p.a", "p.b"}
