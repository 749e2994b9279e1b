"""The check of docstrings tells public names from internal ones, and finds what breaks a rule: ``tests/docstrings.py``."""

from __future__ import annotations

import ast

import pytest

from tests.docstrings import ROOT, Package, offences, reasons, sentence_words

SECTIONS = """
    Parameters
    ----------
    n : int
        A number.
    """

LONG = " ".join(["Word"] * 40)

FILES = {
    "ooc_chol/__init__.py": """
from ooc_chol.inner import Shown as Shown
from ooc_chol.inner import other as renamed
""",
    "ooc_chol/inner.py": f'''
"""What a module's docstring may not begin with, long as it may be."""

class Base:
    """A base of a public class."""

    def inherited(self, n):
        """Inherited, hence public.
{SECTIONS}"""

class Shown(Base):
    """A public class.
{SECTIONS}"""

    def method(self, n):
        """A public method.
{SECTIONS}"""

    def _hidden(self, n):
        """An internal method.
{SECTIONS}"""

def public(n):
    """Public by another name.
{SECTIONS}"""

other = public

def documented(n):
    """Public by a page of the reference.
{SECTIONS}"""

def wordy(n):
    """{LONG}.

    {LONG}.
{SECTIONS}"""

def winding(n):
    """Short. {LONG} and more.
{SECTIONS}"""

def wide(n):
    """A number.

    Examples
    --------
    >>> wide(1)
    ... {"x" * 71}
    """

def wordy_inside(n):
    """{LONG}."""

def internal(n):
    """An internal function.
{SECTIONS}"""

def is_small(n):
    """Whether n is small."""
''',
    "ooc_chol/kinds.py": '''
"""Kinds, and classes over them."""

from typing import overload

import ooc_chol.roots as roots
from ooc_chol import inner

class Middle(roots.Root):
    """A class between."""

class Kind(Middle, inner.Base, dict):
    """A class whose methods are described by its bases, or by nobody."""

    def by_root(self): ...

    def inherited(self, n): ...

    def mentioned(self): ...

    async def forgotten(self): ...

    def keys(self): ...

    def _internal(self): ...

    def __len__(self): ...

    @overload
    def several(self, n: int): ...

    def several(self, n):
        """One of several types."""

    @property
    def value(self):
        """A value."""

    @value.setter
    def value(self, value): ...

class _Hidden:
    """An internal class."""

    def method(self): ...
''',
    "ooc_chol/roots.py": '''
"""The root of the kinds."""

class Root:
    """A class with methods."""

    def by_root(self):
        """Described at the root."""

    def mentioned(self): ...

class Other:
    """A class that is no base of a kind."""

    def forgotten(self):
        """Described elsewhere."""
''',
    "docs/reference/page.rst": """
.. currentmodule:: ooc_chol.inner

.. autofunction:: documented
.. autofunction:: wide
.. autofunction:: wordy
.. autofunction:: winding
""",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    root = tmp_path_factory.mktemp("package")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return {(each.name, each.reason.split(":")[0]) for each in offences(root)}


def test_internal_names_have_no_sections_and_public_ones_may(found):
    assert {name for name, reason in found if "sections" in reason} == {"_hidden", "internal"}


def test_first_words_are_those_of_all_docstrings(found):
    first = {name: reason for name, reason in found if "begins" in reason}
    assert first == {"ooc_chol.inner": "begins with What", "is_small": "begins with Whether"}


def test_descriptions_of_public_names_begin_with_their_subject():
    text = "Say it.\n\nParameters\n----------\nn : int\n    What is said.\nk : int\n    A number.\n    What follows."
    (node,) = ast.parse("def shown(n, k): pass").body
    assert [each.partition(":")[0] for each in reasons(node, text, is_public=True)] == [
        "describes a parameter or a result by What ..."
    ]


def test_sentences_of_public_names_are_short_on_average_and_at_all(found):
    # two of 40 words, and one of two words: "A number."
    average, longest = "has sentences of 27 words on average, 25 at most", "has a sentence of 42 words, 40 at most"
    columns = "has an example of 71 columns, 70 at most"
    assert {each for each in found if "at most" in each[1]} == {("wordy", average), ("winding", longest), ("wide", columns)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("One two. Three four five six!", [2, 4]),
        (f"A ``code span of many words``, and :class:`~a.b.c`, and `{LONG}`.", [6]),
        ("One\n\ntwo three", [1, 2]),
        (f"One two.\n\nParameters\n----------\nn : a type of its own\n    Three.\n\nExamples\n--------\n{LONG}.", [2, 1]),
        ("Raises\n------\nOne\n    Two three.\nFour\n    Five", [3, 2]),
    ],
)
def test_sentences_have_code_spans_as_words_and_no_headings_or_examples(text, words):
    assert sentence_words(text) == words


def test_methods_have_docstrings_unless_a_base_of_the_package_has_one(found):
    silent = [name for name, reason in found if "no docstring" in reason]
    assert sorted(silent) == ["forgotten", "keys", "mentioned"]


def test_a_silent_method_is_found_at_each_place(tmp_path):
    (tmp_path / "ooc_chol").mkdir()
    (tmp_path / "ooc_chol" / "kinds.py").write_text(FILES["ooc_chol/roots.py"], encoding="utf-8")
    assert [(each.path.name, each.line, each.name) for each in offences(tmp_path)] == [("kinds.py", 10, "mentioned")]


def test_public_names_of_this_package_are_found():
    package = Package(ROOT)
    public = {getattr(node, "name", "") for node in package.public(sorted(ROOT.glob("docs/reference/*.rst")))}
    assert {"cholesky", "eigsh", "CholeskyFactor", "half_solve", "GreatCircle", "normalized_cut", "Factorization"} <= public
    assert {"make_plan", "TileGrid", "BlockCache", "left_looking"}.isdisjoint(public)
