"""Kinds of tests by what they start, which costs more than what they compute, each by a fixture; tiers leave kinds out.

A fixture permits: a test that starts what none of its fixtures names fails, whoever starts it. So nobody marks kinds by hand,
and a tier leaves out all of a kind.
"""

from __future__ import annotations

import ast
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, wraps
from hashlib import sha256
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

#: Kinds, and what a person reads of each. The fixtures of these names do nothing but permit.
KINDS = {
    "processes": "starts a program or forks",
    "clusters": "starts a Dask cluster",
    "compilers": "starts a compiler",
    "foreign": "imports torch, JAX, scikit-learn, PyAMG or Dask",
    "waiting": "waits by the clock",
    "long": "computes for seconds",
}
#: Tiers: ``commit`` leaves all kinds out but for tests marked ``commit``.
TIERS = ("commit", "all")
#: Packages that take a tenth of a second and more to import, and that no part of the package needs.
FOREIGN = frozenset(("torch", "jax", "sklearn", "pyamg", "distributed", "dask"))
#: Of these the ones that others import by themselves: spectral partitions, xarray.
LIGHT = frozenset(("pyamg", "dask", "distributed"))
#: Programs that end at once: the commit of a result file; what a machine is, which NumPy before 2.2 asks at an import; and which
#: fonts there are, which Matplotlib asks at its first drawing on a machine.
QUICK = frozenset(("fc-list", "git", "lscpu", "uname"))
COMPILERS = frozenset(("nvcc", "c++", "cc", "g++", "gcc", "clang", "clang++"))
#: Seconds that a test may sleep in all without the fixture; shorter sleeps than these are looks at what a thread has come to, of
#: which a busy machine takes more.
SLEEP_SECONDS, LOOK_SECONDS = 0.2, 0.02

#: Seconds of processor that a tier may spend on the cases of one test; the others it leaves out.
CASE_SECONDS = {"commit": 0.5}
#: A test whose cases take less than this keeps two of them.
PAIR_SECONDS = 1.5

_TESTS = Path(__file__).resolve().parent
#: Seconds of files by tier, and means of cases by test, as ``python -m tests.run --record`` wrote them.
SECONDS = _TESTS / "seconds.json"
_STARTS = frozenset(("os.fork", "os.forkpty", "os.posix_spawn", "os.system"))


@pytest.fixture(scope="session")
def processes() -> None:
    """Permit programs and forks."""


@pytest.fixture(scope="session")
def clusters(processes: None) -> None:
    """Permit clusters of Dask, whose workers are processes."""


@pytest.fixture(scope="session")
def compilers() -> None:
    """Permit compilers."""


@pytest.fixture(scope="session")
def foreign() -> None:
    """Permit imports of packages that are slow to import."""


@pytest.fixture(scope="session")
def waiting() -> None:
    """Permit sleep."""


@pytest.fixture(scope="session")
def long() -> None:
    """Say that a test computes for seconds, where smaller ones hold the same in less."""


def kinds_of(item: pytest.Item) -> list[str]:
    """Kinds that a test has by its fixtures, and by the packages that it or its file imports; in the order of the table."""
    has = set(getattr(item, "fixturenames", ()))
    if imports_foreign(item.path) or any(marker.args[0] in FOREIGN for marker in item.iter_markers("package")):
        has.add("foreign")
    return [kind for kind in KINDS if kind in has]


@cache
def imports_foreign(file: Path) -> bool:
    """Look whether a file of tests, or a helper that it imports, imports a package that is slow to import, outside functions."""
    if not file.is_relative_to(_TESTS) or file.suffix != ".py":
        return False
    for node in _outside_functions(ast.parse(file.read_text(encoding="utf-8"))):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            root, _, rest = name.partition(".")
            helper = _TESTS.joinpath(*rest.split(".")).with_suffix(".py") if root == "tests" and rest else None
            if root in FOREIGN or (helper is not None and helper.is_file() and imports_foreign(helper)):
                return True
    return False


def _outside_functions(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when a module is imported, but for those that only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _outside_functions(node)


def left_out(item: pytest.Item, tier: str) -> str | None:
    """The dearest kind for which a tier leaves a test out; None when it runs."""
    if tier == "all" or item.get_closest_marker("commit") is not None:
        return None
    kinds = kinds_of(item)
    return "clusters" if "clusters" in kinds else next(iter(kinds), None)


def function_of(nodeid: str) -> str:
    """The test of which this is a case."""
    return nodeid.partition("[")[0]


def further_cases(items: Iterable[pytest.Item], tier: str, seconds: Mapping[str, float]) -> list[pytest.Item]:
    """Cases that a tier leaves out of tests whose cases together take seconds, by the recorded mean of one.

    Which stay is decided by digests of their names: it depends on no other case, and follows no parameter of a product.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(function_of(item.nodeid), []).append(item)
    most, further = CASE_SECONDS.get(tier, float("inf")), list[pytest.Item]()
    for test, cases in tests.items():
        mean = seconds.get(test, 0.0)
        if mean * len(cases) > most:
            kept = max(2 if mean < PAIR_SECONDS else 1, int(most / mean))
            by_digest = sorted(cases, key=lambda case: (not _is_chosen(case), sha256(case.nodeid.encode()).digest()))
            further += [case for case in by_digest[kept:] if not _is_chosen(case)]
    return further


def _is_chosen(item: pytest.Item) -> bool:
    """Look whether a case itself is marked ``commit``, not its test."""
    return any(mark.name == "commit" for mark in getattr(getattr(item, "callspec", None), "marks", ()))


def count_lines(deselected: Mapping[str, int], left: Mapping[str, int]) -> Iterator[str]:
    """Lines for a person on tests that did not run."""
    for what, counts in (("deselected for want of", deselected), ("left out by the tier:", left)):
        if counts:
            yield f"{what} {', '.join(f'{each}: {count}' for each, count in sorted(counts.items()))}"


class Watch:
    """Hears what the test that runs starts, and counts the seconds of each."""

    def __init__(self) -> None:
        self._item: pytest.Item | None = None
        self._thread = threading.main_thread()
        self._started = dict[str, str]()
        self._slept = 0.0
        #: Seconds of processor by file, of its tests with their fixtures and of the processes that these waited for.
        self.seconds = dict[str, float]()
        #: The same by test with the number of its cases that ran, and how many cases there are, those left out included.
        self._cases, self.collected = dict[str, tuple[float, int]](), Counter[str]()
        self._listen()

    def _listen(self) -> None:
        """No event tells of sleep before Python 3.13, nor of what multiprocessing spawns: both are wrapped."""
        sys.addaudithook(self._hear)
        sleep, start = time.sleep, BaseProcess.start

        @wraps(sleep)  # by its name others may pickle it
        def asleep(seconds: float) -> None:
            self._sleeps(seconds)
            sleep(seconds)

        def started(process: BaseProcess) -> None:
            self._note("processes", "a process of multiprocessing")
            start(process)

        time.sleep = asleep
        BaseProcess.start = started  # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        self._item, self._slept, self._started, self._before = item, 0.0, {}, _processor()
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        yield
        self._item = None
        file, test, took = item.nodeid.partition("::")[0], function_of(item.nodeid), _processor() - self._before
        self.seconds[file] = self.seconds.get(file, 0.0) + took
        before, count = self._cases.get(test, (0.0, 0))
        self._cases[test] = before + took, count + 1
        has = kinds_of(item)
        if {"processes", "clusters"} & set(has):
            has.append("waiting")  # for them
        unsaid = {kind: what for kind, what in self._started.items() if kind not in has}
        if unsaid and not any(item.iter_markers("cuda")) and not any(item.iter_markers("multigpu")):  # these have one tier
            told = ", ".join(f"{what} (fixture {kind})" for kind, what in unsaid.items())
            pytest.fail(f"the test started what none of its fixtures names: {told}", pytrace=False)

    def means(self) -> dict[str, float]:
        """Seconds of a case of each test whose cases together take more than some tier spends on them."""
        means = {test: took / count for test, (took, count) in self._cases.items()}
        return {test: mean for test, mean in means.items() if mean * self.collected[test] > min(CASE_SECONDS.values())}

    def _note(self, kind: str, what: str) -> None:
        if self._item is not None:
            self._started.setdefault(kind, what)

    def _sleeps(self, seconds: float) -> None:
        if self._item is not None and seconds > LOOK_SECONDS and threading.current_thread() is self._thread:
            self._slept += seconds
            if self._slept > SLEEP_SECONDS:
                self._note("waiting", f"more than {SLEEP_SECONDS} s of sleep")

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._item is None:
            return
        if event == "subprocess.Popen":
            name = Path(os.fsdecode(arguments[0])).name
            # As imports of torch and JAX do, ``ctypes.util.find_library`` asks ldconfig, a compiler and ld.
            if name not in QUICK and not _is_called_by("ctypes.util"):
                self._note("compilers" if name in COMPILERS else "processes", name)
        elif event in _STARTS:
            self._note("processes", event)
        elif event == "import" and arguments[0] in FOREIGN - LIGHT:
            self._note("foreign", arguments[0])
        elif event == "socket.bind" and "distributed" in sys.modules and _is_called_by("distributed"):
            self._note("clusters", "a port of Dask's")


def _is_called_by(module: str) -> bool:
    """Look whether a function of the module, or of the package of that name, is being called on this thread."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == module or name.startswith(f"{module}."):
            return True
        frame = frame.f_back
    return False


def _processor() -> float:
    """Seconds of processor of this process and of the children that it waited for."""
    return sum(os.times()[:4])
