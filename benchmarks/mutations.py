"""Faults of one line in the package, and which of them the tests find: the whole suite, and the tier of commits.

    git clone -q . ../mut; python benchmarks/mutations.py COMMAND --clone ../mut --work ../mut-runs

``draw`` draws sixty faults over modules by a seed; ``reach`` records in one whole run which tests come past which fault;
``verdicts`` gives each fault to these tests; ``tier --clone ../later`` gives those that the whole suite finds to the tier of
commits of another commit.

The clone is changed and restored; nobody else may change it. The list and its verdicts are ``results/house/mutations.json``.
``verdicts`` and ``tier`` go on where they were stopped; ``verdicts`` with a greater ``--budget`` asks again where nothing was
found. Options of pytest may follow. As a plug-in of pytest this module tells seconds and outcomes, keeps the tests of a list,
and ends a test that hangs.
"""

from __future__ import annotations

import argparse
import ast
import faulthandler
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).resolve().parent / "results" / "house" / "mutations.json"
KINDS = ("sign", "off by one", "missing wait", "wrong dtype", "missing check")
#: Faults of each kind, and at most so many in a module.
OF_A_KIND, OF_A_MODULE = 12, 2
#: Modules that need a GPU, and benchmarks.
LEFT_OUT = re.compile(r"cuda|ooc_chol/bench/")
WAITS = frozenset(("wait", "join", "synchronize", "acquire", "flush", "fsync", "notify", "drain", "result"))
CHECKS = ("check_", "_check", "require_", "_require")
NARROWER = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
NARROWER |= {f"{order}{kind}{size}": f"{order}{kind}{size // 2}" for order in ("", "<", ">", "=")
             for kind, size in (("f", 8), ("i", 8), ("u", 8), ("c", 16))}  # fmt: skip
NOT_NUMBERS = (ast.JoinedStr, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)
#: What is written before the statement of a fault, and the module that it calls.
HIT = '__import__("ooc_chol.mutation_reach", fromlist=["hit"]).hit({number})\n'
REACH = """import os
SEEN = set()
def now():
    try:
        with open(os.environ["MUTATIONS_TOLD"] + "." + os.environ["MUTATIONS_PYTEST"], encoding="utf-8") as file:
            return file.read()
    except (KeyError, OSError):
        return ""
def hit(number):
    test = os.environ.get("PYTEST_CURRENT_TEST") or now()  # a process that a test starts may have older variables
    if (number, test) not in SEEN:
        SEEN.add((number, test))
        own = os.environ.get("MUTATIONS_PYTEST") == str(os.getpid())
        with open({path!r}, "a", encoding="utf-8") as file:
            file.write(f"{{number}}\\t{{int(own)}}\\t{{test}}\\n")
"""
#: Tests that share workers, which outlive a test: who asked one of them is not known.
CLUSTERS = ("tests/apps/geostat/test_cluster", "tests/host/test_cluster_")
#: A test hangs after so many seconds besides ten times those that it took.
HANGS = 60.0
#: Seconds of tests after which the next ones run in a new process: most faults are found by the first; and those of an import.
STAGES, IMPORT = (4.0, 40.0, float("inf")), 0.3
#: Named as what finds a fault with which the tests cannot be imported.
NO_IMPORT = "import of the tests"


# faults


@dataclass(frozen=True)
class Fault:
    """Other text for the bytes from ``start`` to ``end`` of a module, and the line of the statement that has them."""

    start: int
    end: int
    new: bytes
    statement: int


class Module:
    """The faults that functions of a module can have, by kind."""

    def __init__(self, text: bytes) -> None:
        self.text, self.faults = text, {kind: list[Fault]() for kind in KINDS}
        self._lines = [0, *(place.end() for place in re.finditer(rb"\n", text))]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._look_in(node.body)

    def _span(self, node: Any) -> tuple[int, int]:
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _look_in(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue  # walked by themselves
            self._line = statement.lineno
            start, _ = self._span(statement)
            begins_line = not self.text[self._lines[self._line - 1] : start].strip()
            if begins_line and not self.text.startswith(b"elif", start):  # a line can be written before it
                self._whole(statement)
                for node in _expressions(statement):
                    self._sign(node)
                    self._off_by_one(node)
                    self._dtype(node)
            for child in ast.iter_child_nodes(statement):
                if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                    self._look_in([child] if isinstance(child, ast.stmt) else child.body)

    def _add(self, kind: str, start: int, end: int, new: bytes) -> None:
        self.faults[kind].append(Fault(start, end, new, self._line))

    def _whole(self, node: ast.stmt) -> None:
        name = _called(node.value) if isinstance(node, ast.Expr) else ""
        is_check = isinstance(node, ast.If) and not node.orelse and len(node.body) == 1 and isinstance(node.body[0], ast.Raise)
        start, end = self._span(node)
        nothing = b"pass" + b"\n" * self.text.count(b"\n", start, end)  # the lines behind keep their numbers
        if not WAITS.isdisjoint(name.split("_")):
            self._add("missing wait", start, end, nothing)
        if is_check or name.startswith(CHECKS):
            self._add("missing check", start, end, nothing)

    def _operator(self, left: ast.expr, right: ast.expr, which: bytes) -> tuple[int, bytes] | None:
        first, last = self._span(left)[1], self._span(right)[0]
        found = re.fullmatch(rb"[)\s]*(" + which + rb")[(\s]*", self.text[first:last])
        return (first + found.start(1), found[1]) if found else None

    def _sign(self, node: ast.AST) -> None:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            start, _ = self._span(node)
            self._add("sign", start, start + 1, b"")
        elif isinstance(node, ast.BinOp) and _are_numbers(node) and (at := self._operator(node.left, node.right, rb"[+-]")):
            self._add("sign", at[0], at[0] + 1, b"-" if at[1] == b"+" else b"+")

    def _off_by_one(self, node: ast.AST) -> None:
        if isinstance(node, ast.Compare):
            for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                if at := self._operator(left, right, rb"[<>]=?"):
                    new = at[1][:1] if at[1].endswith(b"=") else at[1] + b"="
                    self._add("off by one", at[0], at[0] + len(at[1]), new)
        elif isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
            start, end = self._span(node.left)[1], self._span(node.right)[1]
            if re.fullmatch(rb"\s*[+-]\s*1", self.text[start:end]):
                self._add("off by one", start, end, b"")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            self._shift(node.args[min(len(node.args) - 1, 1)], b" - 1")
        elif isinstance(node, ast.Slice):
            self._shift(node.lower, b" + 1")
            self._shift(node.upper, b" - 1")

    def _shift(self, node: ast.expr | None, by: bytes) -> None:
        if node is not None and not isinstance(node, ast.Starred):
            start, end = self._span(node)
            is_atom = isinstance(node, ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript)
            self._add("off by one", start, end, (b"%s" if is_atom else b"(%s)") % self.text[start:end] + by)

    def _dtype(self, node: ast.AST) -> None:
        name = getattr(node, {ast.Attribute: "attr", ast.Name: "id", ast.Constant: "value"}.get(type(node), ""), None)
        if isinstance(name, str) and name in NARROWER:
            end = self._span(node)[1] - isinstance(node, ast.Constant)  # before the quote
            self._add("wrong dtype", end - len(name), end, NARROWER[name].encode())


def _expressions(node: Any) -> Iterator[ast.AST]:
    """Expressions of a statement: not those of statements in it, nor types, nor what is in f-strings, which has no place."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case | ast.JoinedStr):
                continue
            is_type = name == "annotation" or (_called(node) == "cast" and child is node.args[0])
            is_type |= isinstance(child, ast.Subscript) and ast.unparse(child.value) in ("NDArray", "dict", "list", "set")
            if not is_type:
                yield child
                yield from _expressions(child)


def _called(node: ast.AST) -> str:
    """Last name of what a call calls; nothing for other nodes."""
    return getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""


def _are_numbers(node: ast.BinOp) -> bool:
    """Look whether no text and no list is in a sum."""
    return not any(isinstance(each, NOT_NUMBERS) or isinstance(getattr(each, "value", 0), str | bytes) for each in ast.walk(node))


def draw(clone: Path, seed: int) -> list[dict[str, Any]]:
    """Faults: for each a module that can have one of its kind, then one of these."""
    names = sorted(path.relative_to(clone).as_posix() for path in (clone / "ooc_chol").rglob("*.py"))
    modules = {name: Module((clone / name).read_bytes()) for name in names if not LEFT_OUT.search(name)}
    dice, taken, drawn = random.Random(seed), Counter[str](), list[dict[str, Any]]()
    for kind in (kind for kind in KINDS for _ in range(OF_A_KIND)):
        name = dice.choice([each for each, has in modules.items() if has.faults[kind] and taken[each] < OF_A_MODULE])
        fault, text = dice.choice(modules[name].faults[kind]), modules[name].text
        modules[name].faults[kind].remove(fault)
        taken[name] += 1
        first, last = text.rfind(b"\n", 0, fault.start) + 1, text.find(b"\n", fault.end)
        before, after = text[first:last], text[first : fault.start] + fault.new + text[fault.end : last]
        ast.parse(text[:first] + after + text[last:])
        where = {"number": len(drawn), "kind": kind, "module": name, "line": text.count(b"\n", 0, first) + 1}
        drawn.append(where | {"statement": fault.statement, "before": before.decode(), "after": after.decode()})
    return drawn


# texts of the clone


@contextmanager
def changed(texts: Mapping[Path, str]) -> Iterator[None]:
    """Give files other texts for a while."""
    before = {path: path.read_text(encoding="utf-8") if path.exists() else None for path in texts}
    try:
        _write(texts)
        yield
    finally:
        _write(before)


def _write(texts: Mapping[Path, str | None]) -> None:
    for path, text in texts.items():
        if text is None:
            path.unlink()
        else:
            path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()  # Python would take it for that of a text of equal length and second


def recording(clone: Path, faults: Sequence[dict[str, Any]], hits: Path) -> dict[Path, str]:
    """Texts of modules that tell when a test comes to the statement of a fault."""
    lines = dict[Path, list[str]]()
    for fault in sorted(faults, key=lambda each: -each["statement"]):
        path, at = clone / fault["module"], fault["statement"] - 1
        own = lines.setdefault(path, path.read_text(encoding="utf-8").splitlines(keepends=True))
        own.insert(at, own[at][: len(own[at]) - len(own[at].lstrip())] + HIT.format(number=fault["number"]))
    reach = {clone / "ooc_chol" / "mutation_reach.py": REACH.format(path=str(hits))}
    return reach | {path: "".join(own) for path, own in lines.items()}


def with_fault(text: str, fault: Mapping[str, Any]) -> str:
    """The text of a module with a fault, whose lines may have moved."""
    before, start = fault["before"], sum(map(len, text.splitlines(keepends=True)[: fault["line"] - 1]))
    if not text.startswith(before + "\n", start):
        if text.count(f"\n{before}\n") != 1:
            raise ValueError(f"{fault['module']} has changed: there is no place in it for fault {fault['number']}")
        start = text.index(f"\n{before}\n") + 1
    return text[:start] + fault["after"] + text[start + len(before) :]


# runs of tests


def environment(clone: Path, told: Path) -> dict[str, str]:
    """Variables with which every process of a run takes the clone's package and this plug-in."""
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = f"{clone}{os.pathsep}{Path(__file__).resolve().parent}"
    return os.environ | one_thread | {"PYTHONPATH": path, "MUTATIONS_TOLD": str(told)}


def collected(clone: Path, options: Sequence[str]) -> list[str]:
    """Tests of the tier of commits."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "--tier=commit", *options]
    out = subprocess.run(command, cwd=clone, env=environment(clone, Path(os.devnull)), capture_output=True, text=True, check=True)
    return [line for line in out.stdout.splitlines() if "::" in line]


def reached(hits: Path, tests: Collection[str]) -> dict[int, set[str]]:
    """Tests that came past each fault.

    One that did while its fixtures were made stands for its file, which may share them, and one whose workers did for all tests
    of clusters.
    """
    found, groups = defaultdict[int, set[str]](set), defaultdict[str, set[str]](set)
    for test in tests:
        groups[test.partition("::")[0]].add(test)
        groups["clusters"].update([test] if test.startswith(CLUSTERS) else [])
    for line in set(hits.read_text(encoding="utf-8").splitlines()):
        number, own, where = line.split("\t")
        test, _, phase = where.rpartition(" (")
        if own == "0" and test.startswith(CLUSTERS):
            found[int(number)] |= groups["clusters"]
        elif phase == "setup)":
            found[int(number)] |= groups[test.partition("::")[0]]
        elif test in tests:
            found[int(number)].add(test)
    return found


@dataclass
class Suite:
    """The tests of a clone, which run in one process of pytest after the other."""

    clone: Path
    work: Path
    seconds: Mapping[str, float]
    options: Sequence[str]

    def cost(self, tests: Iterable[str]) -> float:
        """Seconds that tests took."""
        return sum(self.seconds.get(test, 1.0) for test in tests)

    def look(self, fault: Mapping[str, Any], tests: Collection[str], ran: set[str], budget: float) -> dict[str, Any]:
        """Verdict of these tests on a fault, so many seconds of them; ``ran`` takes those that do not find it."""
        chosen = self._spread(tests, budget)
        for stage in self._stages(chosen):
            if (found := self._first(fault, stage, ran)) is not None:
                return {"found": True, "by": found}
        left_out = len(tests) - len(chosen)
        return {"found": False} | ({"budget": budget, "left_out": left_out} if left_out else {})

    def _spread(self, tests: Iterable[str], budget: float) -> list[str]:
        """The cheapest tests of each file, then the next of each, and so on, as far as the budget goes."""
        of_file, kept = defaultdict[str, list[str]](list), list[str]()
        for test in sorted(tests, key=lambda each: (self.cost([each]), each)):
            of_file[test.partition("::")[0]].append(test)
        for _, cost, test in sorted(
            (rank // 3, self.cost([test]), test) for own in of_file.values() for rank, test in enumerate(own)
        ):
            if cost <= budget:
                budget -= cost
                kept.append(test)
        return kept

    def _stages(self, tests: Sequence[str]) -> list[list[str]]:
        passed, files, parts = 0.0, set[str](), [list[str]() for _ in STAGES]
        for test in tests:
            parts[next(number for number, end in enumerate(STAGES) if passed < end)].append(test)
            passed += self.cost([test]) + IMPORT * (test.partition("::")[0] not in files)
            files.add(test.partition("::")[0])
        return parts

    def _first(self, fault: Mapping[str, Any], tests: Sequence[str], ran: set[str]) -> str | None:
        """The first of these tests that fails with a fault and passes without it."""
        path = self.clone / fault["module"]
        while left := [test for test in tests if test not in ran]:
            with changed({path: with_fault(path.read_text(encoding="utf-8"), fault)}):
                found, began = self._run(left)
            if found is not None and self._run(began or left)[0] is None:
                return found
            ran.update(left if found is None else began or left)  # or it fails without the fault, too
        return None

    def _run(self, tests: Sequence[str]) -> tuple[str | None, list[str]]:
        """The test that failed or hung, and those that began."""
        told, only = self.work / "told.jsonl", self.work / "only.json"
        told.unlink(missing_ok=True)
        only.write_text(json.dumps({test: self.cost([test]) for test in tests}), encoding="utf-8")
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-pmutations", *self.options, *files]
        environ = environment(self.clone, told) | {"MUTATIONS_ONLY": str(only)}
        with (self.work / "output.txt").open("w") as output:
            run = subprocess.Popen(command, cwd=self.clone, env=environ, stdout=output, stderr=output, start_new_session=True)
            try:
                status = run.wait()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)  # with what a test left
        facts = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()] if told.exists() else []
        began, passed = (
            dict.fromkeys(each["test"] for each in facts),
            {each["test"] for each in facts if each.get("failed") is False},
        )
        failed = next((test for test in began if test not in passed), NO_IMPORT)
        return (None if status in (0, 5) else failed), list(began)  # 5: none of them is there


# the plug-in of pytest

_failed = set[str]()


def pytest_configure() -> None:
    """Tell which process is that of pytest."""
    os.environ["MUTATIONS_PYTEST"] = str(os.getpid())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of the list."""
    if (only := _only()) is not None:
        items[:] = [item for item in items if item.nodeid in only]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tell what begins and what ends, and end what hangs."""
    began, only = time.monotonic(), _only()
    if only is None:
        Path(f"{os.environ['MUTATIONS_TOLD']}.{os.getpid()}").write_text(f"{item.nodeid} (call)", encoding="utf-8")
    else:
        _tell(test=item.nodeid)
        faulthandler.dump_traceback_later(HANGS + 10 * only[item.nodeid], exit=True, file=sys.__stderr__)
    outcome = yield
    faulthandler.cancel_dump_traceback_later()
    _tell(test=item.nodeid, seconds=round(time.monotonic() - began, 3), failed=item.nodeid in _failed)
    return outcome


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Hear of failures, those of fixtures also."""
    if report.failed:
        _failed.add(report.nodeid)


@cache
def _only() -> dict[str, float] | None:
    path = os.environ.get("MUTATIONS_ONLY")
    return json.loads(Path(path).read_text(encoding="utf-8")) if path else None


def _tell(**facts: object) -> None:
    with open(os.environ["MUTATIONS_TOLD"], "a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


# commands


def reach(given: argparse.Namespace, record: dict[str, Any], options: Sequence[str]) -> None:
    """Record which tests come past which fault, in one run of the whole suite."""
    hits, told = given.work / "hits.tsv", given.work / "reach.jsonl"
    for path in (hits, told):
        path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.run", "--tier=all", f"--processes={given.processes}", "-pmutations", *options]
    with changed(recording(given.clone, record["faults"], hits)):
        subprocess.run(command, cwd=given.clone, env=environment(given.clone, told), check=False)


def ask(given: argparse.Namespace, record: dict[str, Any], options: Sequence[str]) -> None:
    """Give each fault to tests until one fails, kind after kind in turn."""
    ends = [json.loads(line) for line in (given.work / "reach.jsonl").read_text(encoding="utf-8").splitlines()]
    suite = Suite(given.clone, given.work, {end["test"]: end["seconds"] for end in ends}, options)
    by_fault, is_later = reached(given.work / "hits.tsv", suite.seconds), given.command == "tier"
    later = set(collected(given.clone, options)) if is_later else set()
    for fault in sorted(record["faults"], key=lambda each: each["number"] % OF_A_KIND):
        verdicts, tests = fault.setdefault("verdicts", {}), by_fault[fault["number"]]
        whole = verdicts.get("suite", {"found": False, "budget": 0.0})
        if is_later and whole["found"] and "tier" not in verdicts:
            verdicts["tier"] = _of_tier(suite, fault, tests, later, given.budget)
        elif not is_later and whole.get("budget", given.budget) < given.budget:
            verdicts["suite"] = {"tests": len(tests)} | suite.look(fault, tests, set(), given.budget)
        print(fault["number"], fault["kind"], fault["module"], fault["line"], verdicts, flush=True)
        save(given.file, record | ({"tier": _head(given.clone)} if is_later else {}))


def _of_tier(suite: Suite, fault: dict[str, Any], tests: set[str], later: set[str], budget: float) -> dict[str, Any]:
    """The test that found it, if it is still there; then what came past it, and new tests of the same files."""
    files, ran = {test.partition("::")[0] for test in tests}, set[str]()
    verdict = suite.look(fault, later & {fault["verdicts"]["suite"]["by"]}, ran, float("inf"))
    if verdict["found"]:
        return verdict
    new = {test for test in later - suite.seconds.keys() if test.partition("::")[0] in files}
    return suite.look(fault, (later & tests) | new, ran, budget)


def _head(clone: Path) -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True).stdout.strip()


def save(path: Path, record: dict[str, Any]) -> None:
    """Write the file, with how many faults have a verdict and are found."""
    own = {name: [each["verdicts"][name]["found"] for each in record["faults"] if name in each.get("verdicts", {})]
           for name in ("suite", "tier")}  # fmt: skip
    record["found"] = {name: {"of": len(found), "found": sum(found)} for name, found in own.items()}
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Run a command."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the clone is restored
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("draw", "reach", "verdicts", "tier"))
    parser.add_argument("--clone", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder of what the run recorded")
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--budget", type=float, default=400.0, help="seconds of tests for a fault")
    parser.add_argument("--processes", type=int, default=(os.cpu_count() or 1) + 1, help="of the run that records")
    parser.add_argument("--file", type=Path, default=RESULTS)
    given, options = parser.parse_known_args()
    given.clone, given.work = given.clone.resolve(), given.work.resolve()
    given.work.mkdir(exist_ok=True)
    if given.command == "draw":
        what = f"{len(KINDS)} kinds of faults of one line, {OF_A_KIND} each, at most {OF_A_MODULE} in a module"
        record = {"case": "mutations", "commit": _head(given.clone), "seed": given.seed, "what": what, "found": {}}
        save(given.file, record | {"faults": draw(given.clone, given.seed)})
        return
    record = json.loads(given.file.read_text(encoding="utf-8"))
    (reach if given.command == "reach" else ask)(given, record, options)


if __name__ == "__main__":
    main()
