"""Promises of the repository itself: links, imports of tests, contents of the wheel, no trace of the machine that wrote it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import ooc_chol as oc
from tests.documents import blocks, is_shown, read
from tests.groups import SERIAL_FILES
from tests.inside.cli import make_parser

ROOT = Path(__file__).resolve().parents[2]
LINKS = ("schedulers", "kernels", "apps")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def run(*command: str, cwd: Path = ROOT) -> str:
    """Output of ``command``; fail with it when the command fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


def repository_files() -> list[Path]:
    """Files that are in git, or would be after ``git add``, relative to the root."""
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return [Path(name) for name in names if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("name", LINKS)
def test_link_at_the_top_is_relative_and_leads_into_the_package(name):
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("ooc_chol") / name
    assert (link / "__init__.py").is_file()


def test_only_the_package_imports_under_its_name():
    """The links are no packages: nothing at the top but these three is meant to be imported, and two are no part of the wheel."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py") if not path.parent.is_symlink()}
    assert packages == {"benchmarks", "ooc_chol", "tests"}


def test_tests_import_helpers_and_never_other_tests():
    """A test module is read for what it promises; what two of them need stands in a module of its own."""
    importing = re.compile(
        r"^\s*(?:from\s+tests\.(?:\w+\.)*test_\w+\s+import|import\s+tests\.(?:\w+\.)*test_\w+).*", re.MULTILINE
    )
    found = {
        str(path.relative_to(ROOT)): importing.findall(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_files_that_never_run_at_once_are_there():
    assert [name for name in sorted(SERIAL_FILES) if not (ROOT / name).is_file()] == []


def test_every_file_of_a_release_has_its_version():
    version = PROJECT["version"]
    patterns = {
        "ooc_chol/__init__.py": r'^__version__ = "(.*)"$',
        "CITATION.cff": r'^version: "(.*)"$',
        "recipe/recipe.yaml": r'^  version: "(.*)"$',
        "CHANGELOG.md": r"^## \[(.*)\] - ",
    }
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in patterns}
    found = {name: re.findall(pattern, texts[name], re.MULTILINE)[:1] for name, pattern in patterns.items()}
    assert found == {name: [version] for name in patterns}
    (date,) = re.findall(rf"^## \[{re.escape(version)}\] - (.*)$", texts["CHANGELOG.md"], re.MULTILINE)
    assert f"date-released: {date}\n" in texts["CITATION.cff"]


def test_the_recipe_needs_what_the_package_needs():
    python = f"python{PROJECT['requires-python']}"
    recipe = (ROOT / "recipe/recipe.yaml").read_text(encoding="utf-8")
    for name, wanted in {
        "run": [python, *PROJECT["dependencies"]],
        "host": [python, *PYPROJECT["build-system"]["requires"]],
    }.items():
        (lines,) = re.findall(rf"^  {name}:\n((?:    - .*\n)+)", recipe, re.MULTILINE)
        # The feedstock of xxhash's Python package has another name than that; pip builds, and Linux is all that is promised.
        listed = set(lines.replace(" >=", ">=").replace("python-xxhash", "xxhash").replace("    - ", "").split())
        assert listed - {"pip", "__linux"} == set(wanted)
    assert "https://" not in recipe and "noarch: python" in recipe


@pytest.mark.parametrize("text", ["pyproject.toml", "README.md", "docs/index.md", "the package", "the command"])
def test_all_six_products_are_named_where_a_reader_begins(text):
    begins = {
        "pyproject.toml": lambda: PROJECT["description"],
        "README.md": lambda: read(ROOT / "README.md").partition("![")[0],
        "docs/index.md": lambda: read(ROOT / "docs/index.md").partition("**You ")[0],
        "the package": lambda: oc.__doc__.partition(">>>")[0],
        "the command": lambda: make_parser().description,
    }[text]()
    missing = [
        word
        for word in ("cholesky", "geostat", "eigenpairs", "partition", "gradients", "imputation")
        if word not in begins.lower()
    ]
    assert missing == []


@pytest.mark.parametrize("name", ["bug.yml", "request.yml"])
def test_an_issue_asks_for_the_report_of_the_machine(name):
    text = (ROOT / ".github/ISSUE_TEMPLATE" / name).read_text(encoding="utf-8")
    assert "label: Output of `ooc-chol report`" in text


@pytest.fixture(scope="module")
def distributions(processes: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Source distribution, and the wheel built from it, without a network and outside the checkout."""
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for path in [*repository_files(), *map(Path, LINKS)]:
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, checkout / path, follow_symlinks=False)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(checkout))
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return source, wheel


@pytest.mark.host
@pytest.mark.commit
def test_wheel_holds_the_package_and_nothing_else(distributions):
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = [Path(name) for name in wheel.namelist()]
    information = {name.parts[0] for name in names if name.parts[0].endswith(".dist-info")}
    assert len(information) == 1
    # The module of the command is beside the package, as it is there before the package is imported.
    assert {name.parts[0] for name in names} - information == {"ooc_chol", "ooc_chol_command.py"}
    packaged = {name for name in names if name.parts[0] == "ooc_chol"}
    assert Path("ooc_chol/py.typed") in packaged
    wanted = {".py", ".cu", ".typed"}
    assert packaged == {path for path in repository_files() if path.parts[0] == "ooc_chol" and path.suffix in wanted}


@pytest.mark.host
def test_source_distribution_holds_each_file_once(distributions):
    """No link, and no second copy of a package under the name of its link."""
    with tarfile.open(distributions[0]) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if not (member.isfile() or member.isdir())] == []
    inside = {Path(*Path(member.name).parts[1:]) for member in members}
    assert [path for path in inside if path.parts and path.parts[0] in LINKS] == []
    assert {Path("LICENSE"), Path("README.md"), Path("pyproject.toml"), Path("ooc_chol/__init__.py")} <= inside
    assert [path for path in inside if path.parts and path.parts[0] in ("benchmarks", "docs", "tests", "traces")] == []


@pytest.mark.host
def test_distributions_are_small(distributions):
    assert [(path.name, path.stat().st_size) for path in distributions if path.stat().st_size >= 3_000_000] == []


@pytest.mark.host
@pytest.mark.package("twine")
def test_distributions_are_fit_for_an_index(distributions):
    told = run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, distributions))
    assert told.count("PASSED") == 2


def needed(name: str) -> Iterator[str]:
    """A package, and what it needs in turn, without extras."""
    yield name
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield from needed(requirement.name)


@pytest.fixture(scope="module")
def empty(distributions, tmp_path_factory):
    """Programs of an environment with the wheel, what it says it needs, linked from where the tests have it, and nothing else."""
    place = tmp_path_factory.mktemp("empty")
    venv.create(place, symlinks=True)
    bin = place / "bin"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYTHONPATH", "PYTHONHOME"):
            patch.delenv(name, raising=False)
        patch.setenv("OOC_CHOL_CACHE", str(place / "rates"))
        packages = Path(run(str(bin / "python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
        for name in {each for text in PROJECT["dependencies"] for each in needed(Requirement(text).name)}:
            package = metadata.distribution(name)
            for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
                (packages / top).symlink_to(Path(str(package.locate_file(top))))
        pip = [sys.executable, "-m", "pip", "--python", str(bin / "python"), "--disable-pip-version-check"]
        run(*pip, "install", "-q", "--no-index", str(distributions[1]), cwd=place)
        yield bin


@pytest.mark.host
def test_the_wheel_runs_in_an_empty_environment(empty, tmp_path):
    """README's program prints what it shows there, and the command a report."""
    code, shown = [block.content for block in blocks(read(ROOT / "README.md")) if block.language in ("python", "text")][:2]
    printed = run(str(empty / "python"), "-c", code, cwd=tmp_path)
    assert [line for line in shown.splitlines() if not is_shown(line, printed)] == []
    told = run(str(empty / "ooc-chol"), "report", "--n", "1000", cwd=tmp_path)
    assert f"ooc_chol   {PROJECT['version']}\n" in told and "Plan: Cholesky of n = 1000" in told


#: What a plain install cannot do, and the extra that can.
WANTING = {
    "oc.cholesky(np.eye(3), devices='cuda:0')": "cuda13",
    "import ooc_chol.diff.torch": "torch",
    "import ooc_chol.diff.jax": "jax",
    "oc.cholesky(np.eye(3), store='L.zarr')": "cluster",
    "oc.cholesky('s3://bucket/a.zarr')": "cluster",
    "oc.cholesky(np.eye(3), client=object())": "cluster",
    "oc.open_cluster('local:2').__enter__()": "cluster",
    "geostat.MaternGP()": "sklearn",
    "geostat.fit(geostat.make_observations(np.arange(18.0).reshape(9, 2), np.arange(9.0)), method='bobyqa')": "nlopt",
    "main('completion bash')": "completion",
    "main('geostat demo')": "plots",
    "main('geostat plot map model.json --output map.png')": "plots",
    "main('geostat fit d.parquet --x x --y y --value v --output m.json')": "io",
    "main('geostat fit d.gpkg --value v --output m.json')": "io",
    "main('spectral segment image.png --output s.npy')": "spectral",
}


@pytest.mark.host
def test_what_a_plain_install_cannot_do_names_its_extra(empty, tmp_path):
    for name in ("d.parquet", "d.gpkg", "image.png"):
        (tmp_path / name).write_bytes(b"x")
    program = f"""
import contextlib, io, json, sys, numpy as np, ooc_chol as oc, ooc_chol_command
from ooc_chol.apps import geostat
def main(words):
    with contextlib.redirect_stderr(io.StringIO()) as told:
        sys.argv[1:] = words.split()
        ooc_chol_command.main()
    raise ValueError(told.getvalue())
found = {{}}
for statement in {list(WANTING)}:
    try:
        exec(statement)
    except (OSError, ValueError, ImportError, oc.OocCholError) as error:
        found[statement] = str(error)
print(json.dumps(found))
"""
    told = json.loads(run(str(empty / "python"), "-c", program, cwd=tmp_path))
    assert {statement: re.findall(r"pip install '.\[(\w+)\]'", told.get(statement, "")) for statement in WANTING} == {
        statement: [extra] for statement, extra in WANTING.items()
    }


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_no_file_names_a_place_on_a_machine():
    folders = "|".join(["home", "Users", "root", "work", "tmp", "opt", "mnt", "scratch"])
    anywhere = [rf"/(?:{folders})/[\w.]"]
    # The places of this very checkout, whatever they are called.
    here = [re.escape(f"{place}/") for place in {ROOT.parent, Path.home(), Path(tempfile.gettempdir())} if place != Path("/")]
    place = re.compile(rf"(?<![\w.~])(?:{'|'.join(anywhere + here)})".encode())
    found = {str(path): match[0] for path in repository_files() if (match := place.search((ROOT / path).read_bytes()))}
    assert found == {}
