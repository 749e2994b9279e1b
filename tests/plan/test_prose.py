"""The check of pages finds what breaks a rule, and nothing in what has no sentences: ``tests/prose.py``."""

from __future__ import annotations

import re

import pytest

from tests import prose
from tests.prose import offences, paragraphs, sentences, too_long

WORDS = " ".join(["word"] * 41)
FIGURES = ", ".join(["1.5"] * 9)


@pytest.mark.parametrize(
    "text",
    [
        f"{WORDS}.",
        f"Before. {WORDS}? After.",
        f"- a point\n- {WORDS}",
        f"1. {WORDS}",
        f"a line\n{WORDS}",
        f"**{WORDS}**",
        f"![{WORDS}](a.png)",
    ],
)
def test_a_long_sentence_is_found_with_its_line(text):
    (found,) = offences("docs/a.md", f"# Title\n\n{text}\n\nAnother.\n")
    assert re.search(r"^a sentence of 4\d words, 40 at most: ", found.reason)
    assert found.line == (4 if "point" in text else 3)
    assert str(found).startswith(f"docs/a.md:{found.line}: ")


@pytest.mark.parametrize("path", ["docs/a.md", "README.md", "docs/decisions/0001-a.md", "docs/lab-notes.md"])
def test_a_paragraph_of_figures_is_found_but_on_pages_of_figures(path):
    found = list(offences(path, f"It takes {FIGURES} seconds.\n"))
    of_figures = path in ("docs/decisions/0001-a.md", "docs/lab-notes.md")
    assert [each.reason[:26] for each in found] == ([] if of_figures else ["a paragraph with 9 figures"])


@pytest.mark.parametrize(
    "text",
    [
        f"```text\n{WORDS} {FIGURES}\n```",
        f"| {WORDS} | {FIGURES} |",
        f"    {WORDS} {FIGURES}",
        f"<!-- {WORDS}\n{FIGURES} -->",
        f"# {WORDS} {FIGURES}",
        f"A span `{WORDS} {FIGURES}` is one word, and so is ``a `{WORDS}` ``.",
        f"A [link](https://a.example/{FIGURES.replace(', ', '/')}) is its text.",
        "FP64, H200, float32, x1, 2-D and a1.5 are no figures: FP8, FP16, FP32, A100, L2, v2, W7.",
        f"{' '.join(['word'] * 40)}. {' '.join(['word'] * 40)}!",
        f"- 1, 2, 3, 4, 5\n- 1, 2, 3, 4, 5\n\n1. 6, 7, 8, 9, 10\n2. {', '.join('12345678')}",
    ],
)
def test_what_has_no_sentences_and_what_keeps_to_the_rules_passes(text):
    assert list(offences("docs/a.md", f"{text}\n")) == []


@pytest.mark.parametrize("language", ["python", "sh", "console"])
def test_a_wide_line_of_code_is_found(language):
    page = f"# Title\n\n```{language}\n{'a' * 70}\n  {'b' * 69}\n```\n\n```text\n{'c' * 99}\n```\n"
    assert [str(each) for each in offences("docs/a.md", page)] == [
        f"docs/a.md:5: a line of code of 71 columns, 70 at most:   {'b' * 58}..."
    ]


def test_a_page_is_read_in_paragraphs_and_points():
    page = (
        "# Title\n\nOne `a b`\nline $a b$. Two.\n\n$$\na b\n$$\n\n| a |\n|---|\n\n- **three** [four](five.md)\n- six\n  seven\n"
    )
    assert list(paragraphs(page)) == [(3, "One Code line Code. Two."), (13, "three four"), (14, "six seven")]
    assert sentences("One Code line Code. Two.") == ["One Code line Code.", "Two."]


def test_pages_and_all_of_them_have_a_most_of_words():
    guide, reference = "word " * (prose.GUIDE_WORDS + 1), "word " * prose.PAGE_WORDS["geostat.md"]
    found = list(too_long({"README.md": guide, "docs/a.md": guide, "docs/geostat.md": reference}))
    assert [str(each) for each in found] == ["docs/a.md:1: 2501 words, 2500 at most"]
    pages = {f"docs/{number}.md": "word " * 2500 for number in range(19)}
    assert [str(each) for each in too_long(pages)] == ["docs:1: 47500 words in all pages, 45000 at most"]


def test_a_page_that_does_not_is_said(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"{WORDS}.\n", encoding="utf-8")
    (tmp_path / "docs/a.md").write_text("Short.\n", encoding="utf-8")
    found = prose.all_offences(tmp_path)
    assert [(each.path, each.line) for each in found] == [("README.md", 1)]
    monkeypatch.setattr(prose, "all_offences", lambda: found)
    assert prose.main() == 1 and capsys.readouterr().out == f"{found[0]}\n"
    monkeypatch.setattr(prose, "all_offences", list)
    assert prose.main() == 0 and capsys.readouterr().out == ""


def test_words_of_restructured_text_are_counted_and_its_sentences_are_not(tmp_path, monkeypatch):
    (tmp_path / "docs/reference").mkdir(parents=True)
    (tmp_path / "README.md").touch()
    (tmp_path / "docs/reference/a.rst").write_text(f"{WORDS}.\n", encoding="utf-8")
    assert prose.all_offences(tmp_path) == []
    monkeypatch.setattr(prose, "ALL_WORDS", 40)
    assert list(map(str, prose.all_offences(tmp_path))) == ["docs:1: 41 words in all pages, 40 at most"]
