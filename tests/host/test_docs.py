"""The pages of the documentation run as they stand, print what they show, and have a place for every public name and command."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from pathlib import Path

import pytest

from benchmarks import running
from ooc_chol import diff, tracing
from ooc_chol.apps import geostat, imputation, spectral
from tests.documents import ROOT, blocks, is_shown, pages, parse, read, run_command, run_document
from tests.inside.cli import main
from tests.inside.kernels import blas
from tests.public import public_names as names_of_the_package

pytestmark = pytest.mark.usefixtures("zarr_threads")

DOCS = ROOT / "docs"
#: Pages whose blocks other tests run, or that have none.
ELSEWHERE = {"geostat-guide", "geostat", "index", "lab-notes"}


@pytest.mark.usefixtures("foreign")
def test_the_tutorial_runs_and_prints_what_it_shows(one_blas_thread, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "no rates yet"))
    page = DOCS / "tutorial.md"
    run_document(read(page), page, capsys)
    assert {path.name for path in tmp_path.iterdir()} == {"no rates yet", "covariance.npy", "covariance.factor", "run.pftrace"}


PAGES = [
    "sparse",
    "eigenpairs",
    "spectral",
    "imputation",
    "cluster",
    "files",
    "zarr",
    "sparse-sources",
    "how-it-works",
    "traces",
    "residues",
    "mixed-precision",
    "certified",
    "ablation",
    "measurements",
]
#: Pages that need packages.
MORE = {"differentiable": ("jax", "torch")}


@pytest.mark.parametrize(
    "name", [*PAGES, *(pytest.param(name, marks=[pytest.mark.package(each) for each in needs]) for name, needs in MORE.items())]
)
@pytest.mark.usefixtures("foreign")
def test_a_page_runs_and_prints_what_it_shows(one_blas_thread, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "no rates"))
    page = DOCS / f"{name}.md"
    run_document(read(page), page, capsys)


#: Pages that state a budget, with numbers of threads that machines have.
BUDGETS = [
    (path.stem, threads)
    for path in sorted(DOCS.glob("*.md"))
    for threads in (2, 16)
    if any("memory_budget=" in block.content and block.is_run for block in blocks(read(path)))
]


@pytest.mark.parametrize(("name", "threads"), [case for case in BUDGETS if case != ("tutorial", 2)])
def test_the_budgets_of_a_page_are_enough_with_any_number_of_threads(
    one_blas_thread, name, threads, tmp_path, monkeypatch, capsys
):
    """What workspaces of all threads need together must not be what decides."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "no rates"))
    monkeypatch.setattr(blas, "current_threads", lambda: threads)
    page = DOCS / f"{name}.md"
    run_document(read(page), page, capsys)


def test_every_page_with_programs_is_run_by_a_test():
    assert {path.stem for path in DOCS.glob("*.md")} == {"tutorial", *PAGES, *MORE, *ELSEWHERE}
    whole = [DOCS / f"{name}.md" for name in ("geostat", "index", "lab-notes")]
    for path in [*whole, *(DOCS / "decisions").glob("*.md"), *(DOCS / "reference").glob("*.md")]:
        assert not list(blocks(read(path))), path


def test_the_first_page_has_a_card_with_a_picture_for_each_product():
    cards = read(DOCS / "index.md").split("{container} product\n")[1:]
    found = [re.search(r"\[!\[[^]]+\]\((pictures/[\w-]+\.png)\)\]\((\w[\w-]*\.md)\)\n\n\*\*\[", card) for card in cards]
    places = [(match[1], match[2]) for match in found if match is not None]
    assert len(cards) == len(set(places)) == 6
    assert [each for place in places for each in place if not (DOCS / each).is_file()] == []


def test_drawings_are_no_wider_than_a_page():
    """Their letters would shrink with them: a page has room for 800 pixels."""
    widths = {path.name: re.search(r'<svg[^>]*? width="([\d.]+)(pt)?"', read(path)) for path in (DOCS / "pictures").glob("*.svg")}
    pixels = {name: float(match[1]) * (4 / 3 if match[2] else 1) for name, match in widths.items() if match is not None}
    assert len(pixels) > 3 and [name for name, width in pixels.items() if width > 800] == []


def public_names(module):
    """Names that ``module`` says are public: in ``__all__``, or each imported under its own name."""
    text = read(Path(inspect.getfile(module)))
    return set(getattr(module, "__all__", None) or re.findall(r"\bimport (\w+) as \1$", text, flags=re.MULTILINE))


def placed_in(text):
    """Whole names of what a page of the reference describes."""
    module = ""
    for kind, name in re.findall(r"^\.\. (currentmodule|auto\w+):: ([\w.]+)$", text, flags=re.MULTILINE):
        if kind == "currentmodule":
            module = name
        else:
            yield name if name.startswith("ooc_chol.") else f"{module}.{name}"


@pytest.mark.commit
@pytest.mark.usefixtures("foreign")
def test_every_public_name_has_a_place_in_the_reference():
    placed = {name for path in (DOCS / "reference").glob("*.rst") for name in placed_in(read(path))}
    assert {f"ooc_chol.{name}" for name in names_of_the_package()} - placed == set()
    for module, names in (
        (tracing, ("tracing",)),
        (geostat, ("geostat",)),
        (spectral, ("spectral",)),
        (imputation, ("imputation",)),
        (diff, ("diff",)),
    ):
        public = set(diff.__all__) if module is diff else public_names(module)
        assert len(public) > 5 and all(hasattr(module, name) for name in public)
        text = "".join(read(DOCS / "reference" / f"{name}.rst") for name in names)
        placed = re.findall(r"^\.\. auto\w+:: (\w+)$", text, flags=re.MULTILINE)
        assert public - set(placed) == set()
        assert module not in (geostat, spectral, imputation, diff) or sorted(placed) == sorted(public)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_every_name_of_an_adapter_has_a_place_in_the_reference(framework):
    listed = re.search(r"__all__ = (\[.*?\])", read(Path(diff.__file__).parent / f"{framework}.py"), flags=re.DOTALL)
    placed = re.findall(r"^\.\. auto\w+:: (\w+)$", read(DOCS / "reference" / f"diff-{framework}.rst"), flags=re.MULTILINE)
    assert sorted(ast.literal_eval(listed[1])) == sorted(placed)


def commands_of(capsys, *words):
    """Commands below ``words``, from what the command line answers to one that does not exist."""
    with pytest.raises(SystemExit):
        main([*words, "no-such-command"])
    choices = re.search(r"\(choose from (.*)\)", capsys.readouterr().err)
    return {name.strip("', ") for name in choices[1].split(",")}


def test_every_command_has_its_help_in_the_reference(capsys):
    groups = {"bench", "geostat", "impute", "sparse", "spectral", "trace"}
    top = commands_of(capsys)
    assert groups < top
    wanted = (top - groups) | {f"{group} {name}" for group in groups for name in commands_of(capsys, group)}
    assert set(re.findall(r"^```\{command-help\} (.+)$", read(DOCS / "reference" / "commands.md"), flags=re.MULTILINE)) == wanted


def test_commands_in_running_text_are_read_by_their_parsers(capsys):
    """What a sentence names as a whole command has options that exist; what it leaves out it writes as dots or capitals."""
    named = {text for page in pages() for text in re.findall(r"`ooc-chol ([^`]+)`", read(page))}
    whole = sorted(text for text in named if not re.search(r"\.\.\.|\||\b(?:COMMAND|NAME|N)\b", text))
    assert len(whole) > 20
    for text in whole:
        if "--" in text.replace("--help", ""):
            assert parse(shlex.split(text)) == 0, text
        else:
            with pytest.raises(SystemExit, match=r"^0$"):
                main([*shlex.split(text.removesuffix("--help")), "--help"])


def test_benchmarks_in_running_text_are_cases_with_these_options(capsys):
    named = {text for page in pages() for text in re.findall(r"`python -m benchmarks ([^`]+)`", read(page))}
    whole = sorted(text for text in named if not re.search(r"\.\.\.|\||\b(?:CASE|NAME|N)\b", text))
    assert len(whole) > 5
    for text in whole:
        if "--" in text:
            assert running.parsed(shlex.split(text)), text
        else:
            with pytest.raises(SystemExit, match=r"^0$"):
                running.parsed([*shlex.split(text), "--help"])


# the checks themselves


def test_a_line_that_was_not_printed_is_found_out():
    printed = "  range        0.0510708; effective range 0.30\nnugget 1e-08\n17,008 bytes\nwall (ms)   12.5"
    assert is_shown("  range        0.0509; effective range 0.301", printed)
    assert is_shown("nugget 1.01e-08", printed)
    assert is_shown("17,010 bytes", printed)
    assert is_shown("wall (ms) 99.1", printed)
    assert not is_shown("  range        0.0409; effective range 0.301", printed)
    assert not is_shown("nugget 2e-08", printed)
    assert not is_shown("  range        0.0509", printed)
    assert not is_shown("19,008 bytes", printed)
    assert not is_shown("wall (s) 12.5", printed)


@pytest.mark.parametrize(
    "line",
    [
        "ooc-chol plan --n 1000 --no-such-option 1",
        "ooc-chol bench rates --device",
        "make no-such-target",
        "python3 -m pip install '.[no-such-extra]'",
        "python -m benchmarks table --no-such-option",
        "rm -r /",
    ],
)
def test_a_command_that_would_fail_is_found_out_without_running_it(line, capsys):
    with pytest.raises((AssertionError, SystemExit)):
        run_command(line, is_run=False)


def test_what_is_not_run_says_why():
    text = (
        "<!-- not run by the tests: it needs a GPU -->\n```sh\nooc-chol devices\n```\n\n"
        "```text\nanything\n```\n```{toctree}\na\n```\n"
    )
    assert [(block.language, block.is_run) for block in blocks(text)] == [("sh", False), ("text", True)]


def test_the_helper_notices_an_output_that_differs(tmp_path, capsys):
    shown = "```python\nprint('two', 2)\n```\n\n```text\ntwo 3\n```\n"
    with pytest.raises(AssertionError, match="shows 'two 3'"):
        run_document(shown, tmp_path / "page.md", capsys)
