"""Promises of the repository itself: links, imports of tests, contents of the wheel, no trace of the machine that wrote it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from tests.groups import SERIAL_FILES

ROOT = Path(__file__).resolve().parents[2]
LINKS = ("schedulers", "kernels", "apps")


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
