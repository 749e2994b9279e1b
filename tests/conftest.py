"""Options, deselection and fixtures of all tests.

A test that cannot run here is *deselected* and counted in one line. A skip fails the run: nothing stops being tested in silence.
Several processes (``pytest -n 2 --dist loadfile``, as ``make test`` has it) promise the same: each takes whole files, those of a
group of ``tests/groups.py`` all for one of them, and what a process deselects or skips is told in the end by the one that a
person sees.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from _pytest.doctest import DoctestModule
from threadpoolctl import threadpool_limits

from tests.cluster_machines import SHARED, SharedCluster, dask_threads, two_workers
from tests.groups import CLUSTER_FILES, group_of
from tests.inside import imported
from tests.kinds import (
    SECONDS,
    TIERS,
    Watch,
    clusters,
    compilers,
    count_lines,
    foreign,
    function_of,
    further_cases,
    left_out,
    long,
    processes,
    waiting,
)

__all__ = ["clusters", "compilers", "dask_threads", "foreign", "long", "processes", "two_workers", "waiting"]

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile("ci")  # --hypothesis-profile=thorough looks further, with new examples in every run

#: Tier of the tests of a folder that do not name one themselves.
_TIER_OF_FOLDER = {"plan": "plan", "host": "host", "apps": "host"}

#: Seconds that a thread gets to end after its test.
_THREAD_GRACE_SECONDS = 2.0

#: Whether this process began with one thread in each call of BLAS.
_HAS_ONE_THREAD = all(os.environ.get(f"{name}_NUM_THREADS") == "1" for name in ("OPENBLAS", "OMP", "MKL"))

_deselected = pytest.StashKey[dict[str, int]]()
_left_out = pytest.StashKey[dict[str, int]]()
_skipped = pytest.StashKey[list[str]]()
_watch = pytest.StashKey[Watch]()
#: What a process of several tells of its tests.
_COUNTED = {"deselected": _deselected, "left_out": _left_out, "skipped": _skipped}


# options


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ooc_chol")
    group.addoption("--data", metavar="DIR", type=Path, help="shared data; without it the tests that need it are deselected")
    group.addoption("--thorough", action="store_true", help="every combination of parameters, where the usual run takes some")
    group.addoption(
        "--tier", choices=TIERS, default="all", help="commit: leave out what starts processes, clusters, compilers ..."
    )
    group.addoption(
        "--seconds", metavar="FILE", type=Path, default=SECONDS, help="recorded seconds, by which a tier leaves cases out"
    )
    group.addoption(
        "--granularity", choices=("usual", "hostile"), default="usual", help="hostile: the least tiles, memory and threads"
    )
    group.addoption("--told", metavar="FILE", type=Path, help="write what ran, was left out, and took how long to this JSON file")
    group.addoption("--require-cuda", metavar="N", type=int, default=0, help="fail unless N CUDA devices are visible to CuPy")


def _hear_interrupts() -> None:
    """Let signals reach their tests where who started them ignores them: Ctrl-C behind a shell, SIGHUP behind ``nohup``."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    _hear_interrupts()
    if config.getoption("--granularity") == "hostile":
        from tests.hostile import make_hostile

        make_hostile()
    config.stash[_deselected] = {}
    config.stash[_left_out] = {}
    config.stash[_skipped] = []
    config.stash[_watch] = Watch()
    config.pluginmanager.register(config.stash[_watch])
    config.stash[SHARED] = SharedCluster()
    if _is_distributed(config) and not _is_worker(config):
        # Several processes, one thread of BLAS each, unless the user or a test asks for more; the workers inherit it.
        for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(variable, "1")
        # Each of them, and each process that a test starts, would compile every module again.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    data, required = config.getoption("--data"), config.getoption("--require-cuda")
    if data is not None and not data.is_dir():
        raise pytest.UsageError(f"--data {data}: there is no such folder")
    if required and cuda_device_count() < required:
        raise pytest.UsageError(f"--require-cuda {required}: CuPy sees {cuda_device_count()} CUDA devices")


def _is_worker(config: pytest.Config) -> bool:
    """Whether another process collects what this one finds."""
    return hasattr(config, "workerinput")


def _is_distributed(config: pytest.Config) -> bool:
    """Whether several processes run the tests; pytest-xdist need not be there."""
    return _is_worker(config) or bool(config.getoption("numprocesses", None))


def cuda_device_count() -> int:
    """CUDA devices visible to CuPy; 0 without CuPy, a driver or a device."""
    try:
        from cupy.cuda import runtime
    except ImportError:
        return 0
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError:
        return 0


# collection


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Iterator[list[pytest.Collector]]:
    """Files of this folder show no examples: what looks for them need not."""
    collectors = yield
    return [each for each in collectors if not isinstance(each, DoctestModule)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, deselected = [], []
    for item in items:
        _mark_tier(item)
        want, counts = _missing_here(item), config.stash[_deselected]
        if want is None:
            want, counts = left_out(item, config.getoption("--tier")), config.stash[_left_out]
        if want is None:
            kept.append(item)
        else:
            deselected.append(item)
            counts[want] = counts.get(want, 0) + 1
    config.stash[_watch].collected = Counter(function_of(item.nodeid) for item in kept)
    seconds = json.loads(config.getoption("--seconds").read_text(encoding="utf-8"))["cases"]
    if further := further_cases(kept, config.getoption("--tier"), seconds):
        config.stash[_left_out]["cases"] = len(further)
        out = set(further)
        kept, deselected = [item for item in kept if item not in out], deselected + further
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = kept


def _mark_tier(item: pytest.Item) -> None:
    """Give ``item`` the tier of its folder, unless it names its own."""
    if _names(item).isdisjoint(("plan", "host", "cuda", "multigpu")) and (tier := _tier_of(item.path.parent)) is not None:
        item.add_marker(tier)


@cache
def _tier_of(folder: Path) -> str | None:
    if folder.is_relative_to(Path(__file__).parent):
        return next((_TIER_OF_FOLDER[part] for part in folder.parts if part in _TIER_OF_FOLDER), None)
    return None


def _names(item: pytest.Item) -> set[str]:
    """Those of its markers."""
    return {marker.name for marker in item.iter_markers()}


def _missing_here(item: pytest.Item) -> str | None:
    """What ``item`` needs and this run has not; None when it can run."""
    names = _names(item)
    needs_data = "data" in names or "data_dir" in getattr(item, "fixturenames", ())
    if needs_data and item.config.getoption("--data") is None:
        return "--data=DIR"
    if "nvcc" in names and shutil.which("nvcc") is None:
        return "nvcc"
    if "viewer" in names and (want := _missing_viewer()) is not None:
        return want
    for marker in item.iter_markers("package") if "package" in names else ():
        if not _is_there(marker.args[0]):
            return str(marker.args[0])
    for marker in item.iter_markers("program") if "program" in names else ():
        if shutil.which(marker.args[0]) is None:
            return str(marker.args[0])
    for marker in item.iter_markers("golden_bits") if "golden_bits" in names else ():
        if not _holds_here(marker.args[0]):
            return f"the libraries and processor of {marker.args[0].name}"
    if "thorough" in names and not item.config.getoption("--thorough"):
        return "--thorough"
    if item.config.getoption("--granularity") == "hostile":
        from tests.hostile import usual_alone

        if (what := usual_alone(item)) is not None:
            return f"usual granularity ({what})"
    devices = _cuda_devices_needed(item) if names & {"cuda", "multigpu"} else 0
    if devices and cuda_device_count() < devices:
        return f"CuPy and {devices} CUDA device{'s' if devices > 1 else ''}"
    return None


@cache
def _is_there(package: str) -> bool:
    return find_spec(package) is not None


@cache
def _missing_viewer() -> str | None:
    """What of a browser and the viewer of traces is not here."""
    from benchmarks import trace_screenshots as script

    return script.missing(script.told())


def _holds_here(record: Path) -> bool:
    """Look up whether bits here are those of a golden file."""
    from tests.golden import holds_here

    return holds_here(record)


def _cuda_devices_needed(item: pytest.Item) -> int:
    needed = 2 if item.get_closest_marker("multigpu") else 0
    cuda = item.get_closest_marker("cuda")
    if cuda is not None:
        needed = max(needed, cuda.args[0] if cuda.args else cuda.kwargs.get("n", 1))
    return needed


# several processes


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole files to whoever is free; in the order of collection, in which the short ones of ``tests/plan`` come last."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(str(super()._split_scope(nodeid)))

    config.option.loadscopereorder = False
    return Files(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take over what a worker counted: each collects all tests, and skips those that it runs."""
    output, skipped = getattr(node, "workeroutput", {}), node.config.stash[_skipped]
    node.config.stash[_deselected].update(output.get("deselected", {}))
    node.config.stash[_left_out].update(output.get("left_out", {}))
    skipped.extend(name for name in output.get("skipped", []) if name not in skipped)


# clusters


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the shared cluster where the next test is in no file of those that share it."""
    yield
    if nextitem is None or not nextitem.nodeid.startswith(CLUSTER_FILES):
        item.config.stash[SHARED].close()


# a skip fails the run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        item.config.stash[_skipped].append(item.nodeid)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    if report.skipped:
        collector.config.stash[_skipped].append(collector.nodeid)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if _is_worker(config):
        config.workeroutput.update({key: config.stash[of] for key, of in _COUNTED.items()})
    elif config.stash[_skipped] and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counts, left, skipped = (config.stash[each] for each in (_deselected, _left_out, _skipped))
    if (told := config.getoption("--told")) is not None:
        outcomes = {name: len(reports) for name, reports in terminalreporter.stats.items() if name}
        watch = config.stash[_watch]
        facts = {"outcomes": outcomes, "deselected": counts, "left_out": left, "seconds": watch.seconds, "cases": watch.means()}
        told.write_text(json.dumps(facts), encoding="utf-8")
    for line in count_lines(counts, left):
        terminalreporter.write_line(line)
    if skipped:
        terminalreporter.write_line(f"FAILED: no skips, deselect by a marker instead: {', '.join(skipped)}", red=True)


# fixtures


@pytest.fixture(scope="session")
def data_dir(pytestconfig: pytest.Config) -> Path:
    """The folder of shared data."""
    return Path(pytestconfig.getoption("--data")).resolve()


@pytest.fixture
def no_lapack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Krylov methods look for few pairs of small matrices too, all of which LAPACK takes elsewhere."""
    from tests.inside.eigen import planning, svds_plan

    monkeypatch.setattr(planning, "_is_for_lapack", lambda posed, k: False)
    monkeypatch.setattr(svds_plan, "_is_for_lapack", lambda shape, k, most: False)


@pytest.fixture
def one_blas_thread() -> Iterator[None]:
    """One thread per BLAS call: one arithmetic key on every machine with the same libraries."""
    if _HAS_ONE_THREAD:  # as all processes of a distributed run: looking for every library takes 10 ms
        yield
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@pytest.fixture(autouse=True)
def no_plan_kept() -> None:
    """Let go of the plans of other tests: a test that changes what planning looks at must not meet them."""
    if (plans := imported("dense", "KEPT_PLANS")) is not None:
        plans.clear()


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Fail a test that leaves a thread behind; page-locked memory that waits for a next call is released at once."""
    before = set(threading.enumerate())
    yield
    if (releaser := imported("memory", "RELEASER")) is not None:
        releaser.release_now()
    deadline = time.monotonic() + _THREAD_GRACE_SECONDS
    while left := [thread for thread in threading.enumerate() if thread not in before]:
        if time.monotonic() > deadline:
            names = ", ".join(thread.name for thread in left)
            pytest.fail(f"the test left {len(left)} thread{'s' if len(left) > 1 else ''} running: {names}", pytrace=False)
        time.sleep(0.01)
