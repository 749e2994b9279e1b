"""Pages keep to their form: short sentences, few figures in a paragraph, narrow code, and so many words.

``python -m tests.prose`` prints what does not, by file and line; `make check` runs it. Blocks, tables, formulas and comments have
no sentences; a code span is one word and no figure. Of ``.rst`` pages only words are counted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SENTENCE_WORDS, PARAGRAPH_FIGURES, ALL_WORDS = 40, 8, 45_000
#: Most columns of a line of code, which scrolls beyond on a phone. Blocks of ``text`` are what programs print.
CODE_COLUMNS = 70
#: Most words of a page of its own kind, as ``wc -w`` counts; all others are guides.
PAGE_WORDS = {"geostat.md": 3_000, "measurements.md": 4_000}
GUIDE_WORDS = 2_500
#: Pages of figures, where a paragraph may have any number.
OF_FIGURES = ("docs/decisions/", "docs/lab-notes.md")

#: What has no sentences; each match is blanked line by line, so that lines keep their numbers.
_ASIDE = re.compile(r"^```.*?^```|^\$\$.*?^\$\$|<!--.*?-->|^(?: {4}|\|).*?$|^#+ .*?$", flags=re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"^```(?:python|sh|bash|console)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
_PARAGRAPH = re.compile(r"^(?:[-*] |\d+\. )?\S.*?(?=\n\s*\n|\n\s*(?:[-*] |\d+\. )|\Z)", flags=re.DOTALL | re.MULTILINE)
_FIGURE = re.compile(r"(?<![\w.,/-])\d+(?:[.,]\d+)*(?:e-?\d+)?(?![\w-])")


class Offence(NamedTuple):
    """A place of a page that breaks a rule."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


def plain(text: str) -> str:
    """A paragraph in words: a code span or a formula is one, of a link or a picture its text stays, marks of emphasis go."""
    text = re.sub(r"``.+?``|`[^`]*`|\$[^$]+\$", "Code", text)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"^(?:[-*] |\d+\. )|\*+", "", " ".join(text.split()))


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs and points of a page in words, each with its line."""
    bare = _ASIDE.sub(lambda found: re.sub(r"[^\n]+", "", found[0]), text)
    for found in _PARAGRAPH.finditer(bare):
        yield bare.count("\n", 0, found.start()) + 1, plain(found[0])


def sentences(paragraph: str) -> list[str]:
    """A paragraph in sentences."""
    return re.split(r"(?<=[.?!])\s+", paragraph)


def offences(path: str, text: str) -> Iterator[Offence]:
    """Offences of one page against the rules for sentences, figures and code."""
    for block in _CODE.finditer(text):
        for number, code in enumerate(block[1].splitlines(), text.count("\n", 0, block.start(1)) + 1):
            if len(code) > CODE_COLUMNS:
                yield Offence(path, number, f"a line of code of {len(code)} columns, {CODE_COLUMNS} at most: {code[:60]}...")
    for line, paragraph in paragraphs(text):
        for sentence in sentences(paragraph):
            n_words = len(re.findall(r"\S*\w\S*", sentence))
            if n_words > SENTENCE_WORDS:
                yield Offence(path, line, f"a sentence of {n_words} words, {SENTENCE_WORDS} at most: {sentence[:60]}...")
        n_figures = len(_FIGURE.findall(paragraph))
        if n_figures > PARAGRAPH_FIGURES and not path.startswith(OF_FIGURES):
            reason = (
                f"a paragraph with {n_figures} figures, {PARAGRAPH_FIGURES} at most, the others to a table: {paragraph[:60]}..."
            )
            yield Offence(path, line, reason)


def too_long(pages: dict[str, str]) -> Iterator[Offence]:
    """Pages with too many words, and all of ``docs`` together."""
    counts = {path: len(text.split()) for path, text in pages.items() if path.startswith("docs/")}
    for path, n_words in counts.items():
        most = PAGE_WORDS.get(path.removeprefix("docs/"), GUIDE_WORDS)
        if n_words > most:
            yield Offence(path, 1, f"{n_words} words, {most} at most")
    if sum(counts.values()) > ALL_WORDS:
        yield Offence("docs", 1, f"{sum(counts.values())} words in all pages, {ALL_WORDS} at most")


def all_offences(root: Path = ROOT) -> list[Offence]:
    """Offences of the front page and of all pages of ``docs``."""
    paths = [root / "README.md", *sorted(path for path in (root / "docs").rglob("*") if path.suffix in {".md", ".rst"})]
    found = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths if "_build" not in path.parts}
    written = ((path, text) for path, text in found.items() if path.endswith(".md"))
    return [each for path, text in written for each in offences(path, text)] + list(too_long(found))


def main() -> int:
    """Print the offences; 1 if there are any."""
    found = all_offences()
    print("\n".join(map(str, found)), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
