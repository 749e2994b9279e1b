"""Docstrings keep to their form: internal names have a short one or none, and none begins with a word that delays its subject.

Sentences of public ones have at most 25 words on average, and 40 at all, and lines of their examples 70 columns.

Public methods have one, unless a method that they override has it: ruff's D102 knows no bases.

``python -m tests.docstrings`` prints what does not, by file and line; `make check` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: Modules whose imports and table of names are public.
FRONTS = (
    "ooc_chol.errors",
    "ooc_chol.rates",
    "ooc_chol.testing",
    "ooc_chol.toolbox",
    "ooc_chol",
    "ooc_chol.apps.geostat",
    "ooc_chol.apps.imputation",
    "ooc_chol.apps.spectral",
    "ooc_chol.diff",
)
FIRST_WORDS = ("What", "Whether", "Of")
#: Most words of a sentence of a public docstring, on average and at all.
MEAN_WORDS, MOST_WORDS = 25, 40
#: Most columns of a line of an example behind its prompt, as in blocks of the pages (``tests/prose.py``).
EXAMPLE_COLUMNS = 70
#: A heading of numpydoc, underlined.
_SECTION = re.compile(r"^[A-Z][A-Za-z ]+\n-{3,}$", re.MULTILINE)
#: The first word of the description below a parameter, result or error.
_DESCRIBED = re.compile(rf"^\S.*\n {{4}}({'|'.join(FIRST_WORDS)})\b", re.MULTILINE)
_EXAMPLE = re.compile(r"^ *(?:>>>|\.\.\.) (.*)$", re.MULTILINE)
_DIRECTIVE = re.compile(r"^\.\. (currentmodule|auto\w+):: +(\S+)", re.MULTILINE)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Offence(NamedTuple):
    """A docstring that breaks a rule."""

    path: Path
    line: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name} {self.reason}"


class Imported(NamedTuple):
    """A name of another module."""

    module: str
    name: str


class Package:
    """The modules of a package by dotted name, as syntax trees once they are looked at."""

    def __init__(self, root: Path) -> None:
        self.root = root
        files = sorted(root.glob("ooc_chol/**/*.py"))
        self.files = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
        self.tree = cache(self._parsed)
        self.names = cache(self._named)

    def _parsed(self, module: str) -> ast.Module:
        return ast.parse(self.files[module].read_text(encoding="utf-8"))

    def _named(self, module: str) -> dict[str, ast.AST | Imported]:
        return dict(_bound(self.tree(module).body)) if module in self.files else {}

    def public(self, references: Iterable[Path]) -> set[ast.AST]:
        """Definitions that users reach: by the front modules, and by the pages of the reference."""
        wanted = [(module, name) for module in FRONTS for name in self.names(module)]
        wanted += [each for page in references for each in _referred(page.read_text(encoding="utf-8"))]
        found: set[ast.AST] = set()
        for module, name in wanted:
            self._add(module, name, found)
        return found

    def _add(self, module: str, name: str, found: set[ast.AST]) -> None:
        """Add what a name of a module means, and of a class its public members and bases."""
        place = self._definition(module, name)
        if place is None or place[1] in found:
            return
        module, node = place
        found.add(node)
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                self._add(module, ast.unparse(base).split("[")[0], found)
            for member, value in _bound(node.body):
                if isinstance(value, ast.Name):
                    self._add(module, value.id, found)
                elif isinstance(value, ast.AST) and _is_public(member):
                    found.add(value)

    def _definition(self, module: str, name: str) -> tuple[str, ast.AST] | None:
        """The module and the node that define a name, through imports and assignments."""
        for _ in range(20):
            first, _, rest = name.partition(".")
            node = self.names(module).get(first)
            if isinstance(node, Imported):
                module, name = node.module, ".".join(filter(None, (node.name, rest)))
                if f"{module}.{node.name}" in self.files:
                    module, name = f"{module}.{node.name}", rest
            elif isinstance(node, ast.Name):
                name = ".".join(filter(None, (node.id, rest)))
            else:
                return None if node is None or rest else (module, node)
        return None

    def undocumented(self, module: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Public methods of a module's public classes of which neither they nor the bases of their class say anything."""
        for kind in ast.walk(self.tree(module)):
            if isinstance(kind, ast.ClassDef) and not kind.name.startswith("_"):
                said = {name for each in self._bases(module, kind) for name in _described(each)}
                yield from (each for each in _silent(kind) if each.name not in said)

    def _bases(self, module: str, kind: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """The bases of a class that the package defines, and their bases."""
        for base in kind.bases:
            place = self._definition(module, ast.unparse(base).split("[")[0])
            if place is not None and isinstance(place[1], ast.ClassDef) and place[1] is not kind:
                yield place[1]
                yield from self._bases(place[0], place[1])


def _methods(kind: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for _, node in _bound(kind.body) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _described(kind: ast.ClassDef) -> Iterator[str]:
    """Names of a class's methods that have docstrings."""
    return (each.name for each in _methods(kind) if ast.get_docstring(each))


def _silent(kind: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Public methods of a class without docstrings; overloads and setters are described by what they belong to."""
    for each in _methods(kind):
        marks = {ast.unparse(mark).split(".")[-1] for mark in each.decorator_list}
        if not each.name.startswith("_") and not ast.get_docstring(each) and marks.isdisjoint({"overload", "setter", "deleter"}):
            yield each


def _bound(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.AST | Imported]]:
    """Names that statements bind, also below conditions, with their definition, import or value."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Import):
            yield from ((alias.asname, Imported(alias.name, "")) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, Imported(node.module or "", alias.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value
            yield node.targets[0].id, value.args[0] if isinstance(value, ast.Call) and len(value.args) == 1 else value
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _bound(node.body)


def _is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def _referred(page: str) -> Iterator[tuple[str, str]]:
    """Modules and names that a page of the reference describes."""
    module = ""
    for directive, name in _DIRECTIVE.findall(page):
        if directive == "currentmodule":
            module = name
        else:
            yield module, name


def documented(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    """Everything in a module that has a docstring, with it."""
    for node in ast.walk(tree):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text


def sentence_words(text: str) -> list[int]:
    """Words of each sentence, without examples and headings; a code span is one word."""
    prose = re.sub(r"^(?:.+\n-{3,}\n|\S.* : .*\n)", "\n", text.partition("Examples\n--------\n")[0], flags=re.MULTILINE)
    prose = re.sub(r"(?::[\w:]+:)?`+[^`]*`+", "Code", prose)
    sentences = [each for part in re.split(r"\n\s*\n|\n(?=\S.*\n {4})", prose) for each in re.split(r"(?<=[.?!])\s", part)]
    return [len(words) for each in sentences if (words := re.findall(r"\S*\w\S*", each))]


def reasons(node: ast.AST, text: str, *, is_public: bool) -> Iterator[str]:
    """Reasons for which a docstring breaks a rule."""
    first = text.split()[0]
    if first in FIRST_WORDS:
        yield f"begins with {first}: begin with the noun, or with an imperative verb"
    if is_public and _SECTION.search(text):
        for word in _DESCRIBED.findall(text):
            yield f"describes a parameter or a result by {word} ...: begin with the noun, or with an imperative verb"
    if not is_public and not isinstance(node, ast.Module) and _SECTION.search(text):
        yield "is internal, and has sections: keep a sentence or two"
    if is_public and (counts := sentence_words(text)):
        if (mean := sum(counts) / len(counts)) > MEAN_WORDS:
            yield f"has sentences of {mean:.0f} words on average, {MEAN_WORDS} at most"
        if max(counts) > MOST_WORDS:
            yield f"has a sentence of {max(counts)} words, {MOST_WORDS} at most"
    if is_public and (wide := [line for line in _EXAMPLE.findall(text) if len(line) > EXAMPLE_COLUMNS]):
        yield f"has an example of {len(wide[0])} columns, {EXAMPLE_COLUMNS} at most: {wide[0][:40]}..."


@cache
def offences(root: Path = ROOT) -> tuple[Offence, ...]:
    """Offences of all docstrings of a package, and where one is missing, in the order of its files."""
    package = Package(root)
    public = package.public(sorted(root.glob("docs/reference/*.rst")))
    found: list[Offence] = []
    for module, path in package.files.items():
        each = partial(_offence, path.relative_to(root), module)
        said = documented(package.tree(module))
        found += (each(node, reason) for node, text in said for reason in reasons(node, text, is_public=node in public))
        found += (each(node, "has no docstring, nor has a method that it overrides") for node in package.undocumented(module))
    return tuple(found)


def _offence(path: Path, module: str, node: ast.AST, reason: str) -> Offence:
    return Offence(path, getattr(node, "lineno", 1), getattr(node, "name", module), reason)


def main() -> int:
    """Print the offences; 1 if there are any."""
    found = offences()
    print("\n".join(map(str, found)), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
