"""What counts as the machine's memory: control groups of both versions, nested and in containers, and limits of the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.runs import ENVIRONMENT
from tests.inside.hardware import control_groups, group_limit, host_limit

GIB = 1 << 30
MOUNT = "41 31 0:38 {root} {folder} rw,relatime shared:9 - {kind} cgroup rw{options}\n"


def group(folder: Path, version: int, *, limit: object, used: int, cached: int) -> None:
    """The files that Linux keeps for one memory control group."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if version == 1 else ("memory.max", "memory.current")
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    prefix = "total_" if version == 1 else ""
    (folder / "memory.stat").write_text(f"anon 5\n{prefix}inactive_file {cached}\n{prefix}active_file 0\nfile_dirty 7\n")


def process(folder: Path, place: str, mounts: str) -> Path:
    """A folder as ``/proc/self``."""
    (proc := folder / "self").mkdir()
    (proc / "cgroup").write_text(place)
    (proc / "mountinfo").write_text(mounts)
    return proc


def test_the_tightest_group_of_nested_ones_counts_with_its_cached_files_free(tmp_path):
    top = tmp_path / "fs cgroup"
    group(top / "a/b", 2, limit="max", used=3 * GIB, cached=0)
    group(top / "a", 2, limit=4 * GIB, used=3 * GIB, cached=GIB)
    mounts = MOUNT.format(root="/", folder=str(top).replace(" ", "\\040"), kind="cgroup2", options="")
    limit = group_limit(process(tmp_path, "0::/a/b\n", mounts))
    assert limit is not None and limit.free_bytes == 2 * GIB and limit.name.endswith("group a")


def test_version_1_counts_by_its_hierarchy_and_no_limit_is_none(tmp_path):
    top = tmp_path / "memory"
    group(top, 1, limit=0x7FFFFFFFFFFFF000, used=9 * GIB, cached=0)
    group(top / "job", 1, limit=GIB, used=GIB // 2, cached=GIB // 4)
    mounts = MOUNT.format(root="/", folder=tmp_path / "cpu", kind="cgroup", options=",cpu")
    mounts += MOUNT.format(root="/", folder=top, kind="cgroup", options=",memory")
    proc = process(tmp_path, "5:cpu:/elsewhere\n4:memory:/job\n", mounts)
    assert [each.folder for each in control_groups(proc)] == [top / "job", top]
    limit = group_limit(proc)
    assert limit is not None and limit.free_bytes == 3 * GIB // 4


@pytest.mark.parametrize("place", ["/docker/12/inner", "/somewhere/else"])
def test_a_container_sees_its_own_group_at_the_mount(tmp_path, place):
    top = tmp_path / "memory"
    group(top, 1, limit=2 * GIB, used=GIB, cached=0)
    group(top / "inner", 1, limit=4 * GIB, used=GIB, cached=0)
    mounts = MOUNT.format(root="/docker/12", folder=top, kind="cgroup", options=",memory")
    limit = group_limit(process(tmp_path, f"4:memory:{place}\n", mounts))
    assert limit is not None and limit.free_bytes == GIB


def test_more_in_use_than_the_limit_leaves_nothing_and_no_groups_no_limit(tmp_path):
    group(tmp_path / "v2/x", 2, limit=GIB, used=2 * GIB, cached=0)
    mounts = MOUNT.format(root="/", folder=tmp_path / "v2", kind="cgroup2", options="")
    limit = group_limit(process(tmp_path, "0::/x\n", mounts))
    assert limit is not None and limit.free_bytes == 0
    assert group_limit(tmp_path / "nowhere") is None


LIMITED = """
import resource, sys
import ooc_chol as oc
from tests.inside.hardware import host_limit
oc.plan
now = 4096 * int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (now + (300 << 20), resource.RLIM_INFINITY))
limit = host_limit()
print(limit.name, limit.free_bytes <= 300 << 20, oc.plan(3000, devices="host").budgets[0].budget_bytes <= 150 << 20)
"""


@pytest.mark.usefixtures("processes")
def test_a_limit_of_the_process_bounds_the_default_budget():
    run = subprocess.run([sys.executable, "-c", LIMITED], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert run.stdout.split(" (")[0] == "RLIMIT_AS" and run.stdout.split()[-2:] == ["True", "True"], run.stdout


@pytest.mark.usefixtures("processes")
def test_a_real_control_group_bounds_the_default_budget():
    """Where this process may make one; elsewhere the machine's own number is all that there is to see."""
    parent = Path("/sys/fs/cgroup/memory")
    own = parent / f"ooc_chol_test_{os.getpid()}"
    try:
        own.mkdir()
    except OSError:
        assert host_limit().free_bytes > 0
        return
    try:
        (own / "memory.limit_in_bytes").write_text(str(GIB))
        code = (
            f"import os; open({str(own / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
            "import ooc_chol as oc\n"
            "print(oc.plan(9000, devices='host').budgets[0].budget_bytes, oc.devices().devices[-1].total_bytes)"
        )
        run = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
        budget, total = map(int, run.stdout.split())
        assert GIB // 4 < budget <= GIB // 2 and total == GIB
    finally:
        own.rmdir()
