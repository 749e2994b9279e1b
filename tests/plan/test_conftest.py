"""What cannot run is deselected and counted; what is skipped, or leaves a thread, fails the run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def run_pytest(folder: Path, test: str, *options: str) -> tuple[int, str]:
    shutil.copy(CONFTEST, folder)
    (folder / "test_it.py").write_text(PASSES + test)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  cuda\n  data\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.host
@pytest.mark.parametrize(
    ("test", "said"),
    [(SKIPS, "no skips"), (SKIPS_ITS_MODULE, "no skips"), (LEAVES_A_THREAD, "left over")],
    ids=["skip", "skipped module", "thread"],
)
def test_run_fails(tmp_path, test, said):
    code, output = run_pytest(tmp_path, test)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert said in output


@pytest.mark.host
@pytest.mark.parametrize(
    ("test", "said"),
    [(NEEDS_DATA, "deselected for want of --data=DIR: 1"), (NEEDS_DEVICES, "deselected for want of CuPy and 99 CUDA devices: 1")],
    ids=["data", "devices"],
)
def test_run_counts_what_it_deselects(tmp_path, test, said):
    code, output = run_pytest(tmp_path, test)
    assert code == pytest.ExitCode.OK
    assert said in output and "1 passed, 1 deselected" in output


@pytest.mark.host
def test_data_folder_reaches_the_test(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "here").touch()
    code, output = run_pytest(tmp_path, NEEDS_DATA, "--data=shared")
    assert code == pytest.ExitCode.OK
    assert "2 passed" in output


@pytest.mark.host
@pytest.mark.parametrize("option", ["--data=nowhere", "--require-cuda=99"])
def test_missing_requirement_is_an_error(tmp_path, option):
    code, output = run_pytest(tmp_path, "", option)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert option.partition("=")[0] in output
