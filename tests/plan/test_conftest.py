"""What cannot run is deselected and counted; what is skipped, or leaves a thread, fails the run: in one process or several."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.products import pairwise

pytestmark = pytest.mark.usefixtures("processes")

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

PASSES = "def test_passes(): pass\n"
SKIPS = "import pytest\ndef test_skips(): pytest.skip('not today')\n"
SKIPS_ITS_MODULE = "import pytest\npytest.importorskip('no_such_module_anywhere')\n"
LEAVES_A_THREAD = """
import threading, time
def test_leaves(): threading.Thread(target=time.sleep, args=(3,), name="left over", daemon=True).start()
"""
NEEDS_DATA = "def test_reads(data_dir): assert (data_dir / 'here').exists()\n"
NEEDS_DEVICES = "import pytest\n@pytest.mark.cuda(n=99)\ndef test_computes(): assert False\n"
NEEDS_PACKAGE = "import pytest\n@pytest.mark.package('no_such_package')\ndef test_imports(): assert False\n"
HAS_PACKAGE = "import pytest\n@pytest.mark.package('numpy')\ndef test_has_it(): import numpy\n"
IS_THOROUGH = "import pytest\n@pytest.mark.thorough\ndef test_goes_further(): pass\n"
HAS_ONE_THREAD = """
import os
def test_asks_for_one_thread(): assert os.environ["OPENBLAS_NUM_THREADS"] == os.environ["OMP_NUM_THREADS"] == "1"
"""
TELLS_ITS_PROCESS = """
import os, pathlib
def test_tells(): pathlib.Path(f"serial-{os.getpid()}").touch()
"""
WAITS_FOR_ANOTHER_PROCESS = """
import os, pathlib, time
def test_waits():
    pathlib.Path(f"file-{os.getpid()}").touch()
    deadline = time.monotonic() + 60
    while len(list(pathlib.Path().glob("file-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
"""

#: Starts something of each kind, with the fixture that permits it and without.
STARTS = {
    "processes": "import os\ndef test_starts({0}):\n    if os.fork() == 0: os._exit(0)\n    os.wait()\n",
    "compilers": "import subprocess\ndef test_starts({0}):\n  try: subprocess.run(['nvcc', '-h'])\n  except OSError: pass\n",
    "foreign": "def test_starts({0}):\n    try: import sklearn.no_such_module\n    except ImportError: pass\n",
    "waiting": "import time\ndef test_starts({0}):\n    for _ in range(3): time.sleep(0.1)\n",
}
#: Asks ldconfig; of what it does not know, a compiler and a linker besides.
FINDS_LIBRARIES = """
import ctypes.util
def test_finds(): ctypes.util.find_library("c"), ctypes.util.find_library("no_such_library")
"""
SPAWNS = """
import multiprocessing
def test_spawns():
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start(); process.join()
"""
MODULE_STARTS = """
import os, pytest
@pytest.fixture(scope="module")
def child():
    if os.fork() == 0: os._exit(0)
    os.wait()
def test_uses(child): pass
"""
#: Cases of a product that take a quarter of a second each by the table; one of another product is marked, and takes a second.
HAS_CASES = """
import pytest
@pytest.mark.parametrize("row", range({rows}))
@pytest.mark.parametrize("column", range(3))
def test_cases(row, column): pass
@pytest.mark.parametrize("case", [0, pytest.param(1, marks=pytest.mark.commit), *range(2, 20)])
def test_one_is_chosen(case): pass
@pytest.mark.parametrize("case", range(20))
def test_nobody_knows(case): pass
"""
CASES = {"cases": {"test_it.py::test_cases": 0.25, "test_it.py::test_one_is_chosen": 1.6}}

DISTRIBUTED = ("-p", "xdist", "-n2", "--dist=loadfile")
either_way = pytest.mark.parametrize("options", [(), DISTRIBUTED], ids=["one process", "two"])


def run_pytest(folder: Path, tests: dict[str, str], *options: str) -> tuple[int, str]:
    """Exit status and output of pytest in a folder with these test files, without plug-ins that are not asked for."""
    shutil.copy(CONFTEST, folder)
    for name, test in tests.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(test)
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\nmarkers =\n  commit\n  cuda\n  data\n  package\n  thorough\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    ours = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment = ours | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(CONFTEST.parents[1])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.host
@either_way
def test_skips_fail_a_run_and_are_named_and_the_data_folder_reaches_the_test(tmp_path, options):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "here").touch()
    tests = {"test_it.py": PASSES + SKIPS, "test_module.py": SKIPS_ITS_MODULE, "test_data.py": NEEDS_DATA + IS_THOROUGH}
    code, output = run_pytest(tmp_path, tests, "--data=shared", "--thorough", *options)
    assert code == pytest.ExitCode.TESTS_FAILED
    (line,) = (line for line in output.splitlines() if "no skips, deselect by a marker instead: " in line)
    assert sorted(line.partition("instead: ")[2].split(", ")) == ["test_it.py::test_skips", "test_module.py"]
    assert "3 passed, 2 skipped" in output


@pytest.mark.host
def test_a_thread_that_is_left_fails_its_test(tmp_path):
    code, output = run_pytest(tmp_path, {"test_it.py": PASSES + LEAVES_A_THREAD})
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "left over" in output


@pytest.mark.host
@either_way
@pytest.mark.commit
def test_run_counts_what_it_deselects(tmp_path, options):
    """Two processes, beside: each takes whole files with one thread of BLAS, and all that are serial go to one of them."""
    tests = {"test_it.py": HAS_PACKAGE + NEEDS_DATA + NEEDS_DEVICES + NEEDS_PACKAGE + IS_THOROUGH}
    if options:
        tests |= dict.fromkeys(("test_a.py", "test_b.py"), WAITS_FOR_ANOTHER_PROCESS + HAS_ONE_THREAD)
        tests |= dict.fromkeys(
            ("tests/host/test_device.py", "tests/host/test_leaks.py", "tests/host/test_team.py"), TELLS_ITS_PROCESS
        )
    code, output = run_pytest(tmp_path, tests, *options)
    assert code == pytest.ExitCode.OK
    assert "deselected for want of --data=DIR: 1, --thorough: 1, CuPy and 99 CUDA devices: 1, no_such_package: 1\n" in output
    assert ("8 passed" if options else "1 passed, 4 deselected") in output
    assert [len(list(tmp_path.glob(name))) for name in ("file-*", "serial-*")] == ([2, 1] if options else [0, 0])


@pytest.mark.host
@pytest.mark.parametrize("option", ["--data=nowhere", "--require-cuda=99"])
def test_missing_requirement_is_an_error(tmp_path, option):
    code, output = run_pytest(tmp_path, {"test_it.py": PASSES}, option)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert option.partition("=")[0] in output


@pytest.mark.parametrize("lengths", [(12, 6, 3), (2, 2, 2, 2), (5, 1)])
@pytest.mark.commit
def test_a_thinned_product_meets_every_pair_and_marks_the_rest(lengths):
    product = pairwise(*map(range, lengths))
    assert [combination.values for combination in product] == list(itertools.product(*map(range, lengths)))
    usual = [combination.values for combination in product if not combination.marks]
    assert {mark.name for combination in product for mark in combination.marks} <= {"thorough"}
    for left, right in itertools.combinations(range(len(lengths)), 2):
        assert len({(each[left], each[right]) for each in usual}) == lengths[left] * lengths[right]
    if len(lengths) == 3:
        assert len(usual) < len(product) / 2


@pytest.mark.commit
def test_what_starts_something_asks_for_the_fixture(tmp_path):
    """Those without it come first: of a package that is there nobody hears again."""
    tests = {f"test_{when}_{kind}.py": test.format(kind * (when == "b")) for kind, test in STARTS.items() for when in "ab"}
    code, output = run_pytest(tmp_path, tests)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert set(re.findall(r"^ERROR (\w+)\.py", output, flags=re.MULTILINE)) == {f"test_a_{kind}" for kind in STARTS}
    assert output.count("the test started what none of its fixtures names") >= len(STARTS)
    assert all(f"(fixture {kind})" in output for kind in STARTS)
    assert re.search(rf"^{len(tests)} passed, (\d+ warnings?, )?{len(STARTS)} errors", output, flags=re.MULTILINE)


@pytest.mark.parametrize("test", [SPAWNS, MODULE_STARTS], ids=["multiprocessing", "a fixture of the module"])
def test_what_multiprocessing_and_fixtures_start_is_seen(processes: None, tmp_path, test):
    code, output = run_pytest(tmp_path, {"test_it.py": test})
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "(fixture processes)" in output


def test_what_finds_a_library_starts_is_no_kind(tmp_path):
    code, output = run_pytest(tmp_path, {"test_it.py": FINDS_LIBRARIES})
    assert (code, "1 passed" in output) == (pytest.ExitCode.OK, True)


#: A port that a test opens itself, and one that a module of Dask's would.
BINDS = """
import socket, sys, types
CODE = compile("def bound(s): s.bind(('127.0.0.1', 0))", "it", "exec")
def bound_by(name):
    module = types.ModuleType(name)
    exec(CODE, vars(module))
    with socket.socket() as s: module.bound(s)
def test_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", types.ModuleType("distributed"))
    bound_by("a_server")
def test_dasks(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", types.ModuleType("distributed"))
    bound_by("distributed.comm.tcp")
"""


def test_a_port_is_of_a_cluster_where_dask_opens_it(tmp_path):
    _, output = run_pytest(tmp_path, {"test_it.py": BINDS})
    assert re.findall(r"^ERROR \S+::(\w+)", output, flags=re.MULTILINE) == ["test_dasks"] and "(fixture clusters)" in output


@either_way
@pytest.mark.commit
def test_a_tier_leaves_kinds_out_and_counts_them(tmp_path, options):
    chosen = "import pytest\n@pytest.mark.commit\ndef test_chosen(processes): pass\n"
    tests = {f"test_{kind}.py": test.format(kind) for kind, test in STARTS.items()} | {
        "test_it.py": PASSES + chosen + SPAWNS.replace("()", "(clusters)", 1)
    }
    code, output = run_pytest(tmp_path, tests, "--tier=commit", *options)
    assert code == pytest.ExitCode.OK
    assert "left out by the tier: clusters: 1, compilers: 1, foreign: 1, processes: 1, waiting: 1\n" in output
    assert "2 passed" in output


def run_cases(folder: Path, *options: str, rows: int = 9) -> tuple[set[str], str]:
    """Names of the cases that passed, and what was printed."""
    (folder / "seconds.json").write_text(json.dumps(CASES))
    options = ("-rp", f"--seconds={folder / 'seconds.json'}", *options)
    code, output = run_pytest(folder, {"test_it.py": HAS_CASES.format(rows=rows)}, *options)
    assert code == pytest.ExitCode.OK
    return set(re.findall(r"^PASSED \S+::(\S+)$", output, flags=re.MULTILINE)), output


@pytest.mark.commit
def test_a_tier_leaves_out_cases_of_what_takes_seconds_and_the_same_ones_whatever_others_there_are(tmp_path):
    passed, output = run_cases(tmp_path, "--tier=commit")
    assert "left out by the tier: cases: 44\n" in output
    cases = {name for name in passed if name.startswith("test_cases")}
    assert len(cases) == 2 and len(passed) == 2 + 1 + 20
    fewer, _ = run_cases(tmp_path, "--tier=commit", rows=8)
    assert len([name for name in fewer if name.startswith("test_cases")]) == 2
    assert {name for name in cases if "-8]" not in name} <= fewer


def test_a_case_that_is_marked_stays_and_the_whole_suite_leaves_no_case_out(tmp_path):
    passed, _ = run_cases(tmp_path, "--tier=commit")
    assert [name for name in passed if name.startswith("test_one_is_chosen")] == ["test_one_is_chosen[1]"]
    passed, output = run_cases(tmp_path, "--tier=all")
    assert len(passed) == 27 + 20 + 20 and "left out" not in output


def test_seconds_of_cases_are_told_with_those_that_are_left_out(tmp_path):
    """A test of which few cases ran is still known to take seconds with all of them."""
    test = "import pytest, time\n@pytest.mark.parametrize('case', range({0}))\ndef test_it(case):\n"
    burns = "    end = time.process_time() + 0.1\n    while time.process_time() < end: pass\n"
    (tmp_path / "seconds.json").write_text(json.dumps({"cases": {"test_many.py::test_it": 0.3}}))
    tests = {"test_many.py": test.format(15) + burns, "test_few.py": test.format(3) + burns}
    options = ("--tier=commit", f"--seconds={tmp_path / 'seconds.json'}", f"--told={tmp_path / 'told.json'}")
    code, output = run_pytest(tmp_path, tests, *options)
    assert code == pytest.ExitCode.OK and "5 passed, 13 deselected" in output
    (mean,) = json.loads((tmp_path / "told.json").read_text())["cases"].items()
    assert mean[0] == "test_many.py::test_it" and mean[1] > 0.08
