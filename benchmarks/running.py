"""The frame of all benchmarks: which cases there are, the options that they share, the head of a result, and its file.

A case is a module beside this one with a function ``run(options)``; the first line of its docstring is its line in the list. A
module or package with functions ``run_this`` and ``run_that`` is two cases, ``module_this`` and ``module_that``, each with names
of its own below that end so, or those of all. ``TAKES`` are options with their defaults, and ``options(parser)`` adds others. The
result that ``run`` returns, or writes as it goes, lies in ``FOLDER`` under ``--name``, by default ``NAME`` or what
``usual_name(options)`` gives; a case whose files have other names says them in ``files(options)``. One that is there is only
replaced with ``--force``, and otherwise refused before anything is measured. Lines that ``run`` yields are printed and written
one after the other, under ``LINES``, beside ``options.about``. A case with ``documented(options)``, tables by their marks, has
``--update`` as well.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.bench.results import RESULT_FILES, commit, machine, write_json
from ooc_chol.config import parse_devices
from ooc_chol.files.outputs import Output, check_outputs

HERE = Path(__file__).resolve().parent
ROOT, RESULTS = HERE.parent, HERE / "results"
#: What is said of options that several cases take.
HELP = {
    "data": "folder of the data",
    "devices": "names of devices with commas between, or a count",
    "folder": "folder of large files (default: the system's for temporary ones)",
    "memory_budget": "memory of each device, such as '16 GiB' (default: what is free)",
    "n": "order of the matrix, or number of observations",
    "repeats": "runs that count",
    "scale": "base-2 logarithm of the number of vertices",
    "scales": "base-2 logarithms of numbers of vertices",
    "seed": "seed of random numbers",
    "threads": "threads on the host",
    "tile_size": "order of a tile (default: chosen by the planner)",
}
#: What a user can mend: shown as one line.
EXPECTED = (oc.OocCholError, ImportError, OSError, ValueError)


class Later:
    """A module that is imported when it is used: packages of GPUs and of others are not everywhere."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


class Parser(argparse.ArgumentParser):
    """The parser of a case."""

    def takes(self, **defaults: Any) -> None:
        """Add an option for each default: ``--tile-size`` for ``tile_size=512``.

        A list is the default of an option that takes several words, a tuple that of some of its own; False is that of a flag. A
        type stands for an option without a default, None for a text without one.
        """
        for name, default in defaults.items():
            self.add_argument(f"--{name.replace('_', '-')}", help=HELP.get(name, ""), **_typed(name, default))


def _typed(name: str, default: Any) -> dict[str, Any]:
    """Arguments of an option with this default."""
    if name == "devices":
        return {"type": parse_devices, "default": default}
    if default is False:
        return {"action": "store_true"}
    if isinstance(default, type):
        return {"type": default}
    if isinstance(default, tuple):
        return {"nargs": "+", "choices": default, "default": list(default)}
    if isinstance(default, list):
        return {"nargs": "+", "type": type(default[0]), "default": default}
    kind = Path if isinstance(default, Path) else type(default)
    return {"default": default} if default is None else {"type": kind, "default": default}


class Options(argparse.Namespace):
    """Options of a case, and where its result goes."""

    case: str
    name: str | None
    output: Path
    force: bool = False
    about: Mapping[str, Any] = MappingProxyType({})
    _claimed: frozenset[Path] = frozenset()

    @property
    def device(self) -> str:
        """The first device."""
        return str(self.devices[0])

    @property
    def on_gpu(self) -> bool:
        """True if GPUs were named."""
        names = getattr(self, "devices", None)
        return isinstance(names, tuple) and names[0].startswith("cuda")

    def write(self, content: Mapping[str, Any], name: str | None = None) -> None:
        """Write what was measured until now behind the head of all results, to the file of this name or of ``--name``."""
        if file := name or self.name:
            (path,) = self.claim(file)
            write_json(head(file, self.on_gpu) | dict(content), path)

    def claim(self, *names: str) -> list[Path]:
        """The files of these names, from now on this run's; another's is refused unless it may be replaced."""
        paths = [self.output / f"{name}.json" for name in names]
        if others := [str(each) for each in paths if each not in self._claimed and each.exists() and not self.force]:
            raise FileExistsError(f"{', '.join(others)} is there already; give another --name, or --force to replace it")
        check_outputs([Output("--name", each, RESULT_FILES) for each in paths if each.exists()], ask="")
        self._claimed |= frozenset(paths)
        return paths

    def read(self, name: str | None = None) -> dict[str, Any]:
        """The content of the result file."""
        content: dict[str, Any] = json.loads((self.output / f"{name or self.name}.json").read_text(encoding="utf-8"))
        return content


@cache
def _where(on_gpu: bool) -> dict[str, Any]:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"commit": commit(), "date": date, "machine": machine(on_gpu)}


def head(case: str, on_gpu: bool = False) -> dict[str, Any]:
    """Head of every result: the case, commit, date and machine."""
    return {"case": case, **_where(on_gpu)}


def cases() -> dict[str, str]:
    """The line of each case, by its name."""
    return {name: (ast.get_docstring(node) or "").splitlines()[0] for name, (_, node) in _cases().items()}


@cache
def _cases() -> dict[str, tuple[str, ast.Module | ast.FunctionDef]]:
    """The module of each case, and what its docstring belongs to."""
    found: dict[str, tuple[str, ast.Module | ast.FunctionDef]] = {}
    for path in sorted((*HERE.glob("*.py"), *HERE.glob("*/__init__.py"))):
        tree, name = ast.parse(path.read_text(encoding="utf-8")), path.parent.name if path.stem == "__init__" else path.stem
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and re.fullmatch("run(_.*)?", node.name):
                found[f"{name}{node.name[3:]}"] = name, tree if node.name == "run" else node
    return dict(sorted(found.items()))


class Case:
    """The functions and constants of a case."""

    def __init__(self, name: str) -> None:
        module, node = _cases()[name]
        self._module, self._end = importlib.import_module(f"benchmarks.{module}"), name.removeprefix(module)
        self.description = ast.get_docstring(node)

    def get(self, name: str, default: Any = None) -> Any:
        """That of the case alone, or of all cases of its module."""
        return getattr(self._module, f"{name}{self._end}", getattr(self._module, name, default))


def parsed(words: Sequence[str]) -> tuple[Case, Options]:
    """A case and its options, from its name and the words behind it."""
    name = words[0].replace("-", "_")
    if name not in cases():
        raise ValueError(f"there is no case {words[0]!r}; `python -m benchmarks` lists them")
    case, shown = Case(name), argparse.RawDescriptionHelpFormatter
    kind = case.get("PARSER", Parser)
    parser = kind(f"python -m benchmarks {words[0]}", description=case.description, formatter_class=shown)
    if (folder := case.get("FOLDER")) is not None:
        parser.add_argument("--name", help="name of the result file; without one nothing is written")
        parser.add_argument("--output", type=Path, default=RESULTS / folder, help="folder of the result file")
        parser.add_argument("--force", action="store_true", help="replace a result file that is there")
    if case.get("documented"):
        parser.add_argument("--update", type=Path, metavar="DOCUMENT", help="measure nothing; make this document's tables anew")
    parser.takes(**case.get("TAKES", {}))
    parser.set_defaults(name=case.get("NAME"))
    case.get("options", lambda parser: None)(parser)
    return case, parser.parse_args(words[1:], Options(case=name))


def result_names(case: Case, options: Options) -> list[str]:
    """Names of the result files of a case with these options, whose own name is given where none was."""
    if case.get("FOLDER") is None:
        return []
    options.name = options.name or case.get("usual_name", lambda options: None)(options)
    return list(case.get("files", lambda options: filter(None, [options.name]))(options))


def main(words: Sequence[str] | None = None) -> int:
    """Run a case, or list them all; the exit status."""
    words = sys.argv[1:] if words is None else words
    if not words or words[0] in ("-h", "--help"):
        width = max(map(len, cases()))
        lines = [f"{each:{width}}  {line}" for each, line in cases().items()]
        print("usage: python -m benchmarks CASE [options]\n", *lines, sep="\n")
        return 0
    names: Collection[str] = ()
    try:
        case, options = parsed(words)
        names = vars(options)
        if case.get("documented") and options.update is not None:
            is_new = updated(options.update, case.get("documented")(options))
            print(f"{options.update}: {'updated' if is_new else 'up to date'}")
            return 0
        options.claim(*result_names(case, options))
        found = case.get("run")(options)
        if isinstance(found, Iterator):
            gathered(found, options, case.get("LINES", "lines"))
            return 0
    except EXPECTED as error:
        print(f"benchmarks: {tb.shell_words(str(error), names)}", file=sys.stderr)
        return 2
    if isinstance(found, Mapping):
        options.write(found)
        print(options.output / f"{options.name}.json" if options.name else json.dumps(found, indent=1))
        return 0
    return found or 0


def gathered(lines: Iterable[Mapping[str, Any]], options: Options, key: str) -> None:
    """Print the lines of a result as they come, and write what is there after each."""
    found = []
    for line in lines:
        found.append(line)
        print(json.dumps(brief(line) if options.name else line), flush=True)
        options.write({**options.about, key: found})


def brief(line: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a line that fits the screen."""
    return {name: value for name, value in line.items() if len(str(value)) < 200}


def attempt(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of a call, or the error that it ends in: another library may fail in any way, and which one is the result."""
    try:
        return run()
    except Exception as error:  # recorded in the result
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def in_turn(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[Any]]:
    """Results of each call in each repeat, one after the other, behind one that does not count: drift treats all alike."""
    found: dict[str, list[Any]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            given = call()
            if repeat:
                found[name].append(given)
    return found


def chosen(options: Options) -> dict[str, Any]:
    """Options of factorizations that are not the defaults."""
    given, defaults = oc.FactorOptions.from_arguments(options).keywords(), oc.FactorOptions().keywords()
    return {name: value for name, value in given.items() if value != defaults[name]}


def drop_pages(path: Path) -> None:
    """Ask the system to forget the pages of a file, once they are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def replaced(text: str, mark: str, table: str) -> str:
    """A document with a table between ``<!-- mark -->`` and ``<!-- /mark -->``, or ``<!-- end -->``."""
    place = re.compile(rf"(<!-- {mark} -->\n+).*?(\n*<!-- (?:end|/{mark}) -->)", flags=re.DOTALL)
    new, count = place.subn(lambda match: match[1] + table.strip("\n") + match[2], text)
    if count != 1:
        raise ValueError(f"there are {count} places between <!-- {mark} --> and <!-- /{mark} -->, not one")
    return new


def updated(document: Path, tables: Mapping[str, str]) -> bool:
    """Write tables between their marks into a document; whether that changed it."""
    old = new = document.read_text(encoding="utf-8")
    for mark, table in tables.items():
        new = replaced(new, mark, table)
    document.write_text(new, encoding="utf-8")
    return new != old


def link_from(document: Path, folder: Path = RESULTS) -> str:
    """A folder as a link in a document."""
    return Path(os.path.relpath(folder, document.resolve().parent)).as_posix()


def markdown(*rows: Sequence[object]) -> str:
    """A table, whose first row is its heading."""
    heading, *others = (f"| {' | '.join(map(str, line))} |" for line in rows)
    return "\n".join([heading, "|" + "---|" * len(rows[0]), *others])


def seconds_of(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, and what it gives."""
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def both_seconds(call: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds of a call by the clock and of the processor, and what it gives."""
    wall, processor = time.perf_counter(), time.process_time()
    found = call()
    return {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}, found


def event_seconds(
    run: Callable[[], Any], repeats: int, at_once: int = 1, before: Callable[[], Any] = lambda: None
) -> list[float]:
    """Seconds of a call in each repeat by events of the current GPU, behind one that does not count, nor does ``before``."""
    import cupy as cp

    found = []
    for _ in range(repeats + 1):
        before()
        cp.cuda.Device().synchronize()
        began, ended = cp.cuda.Event(), cp.cuda.Event()
        began.record()
        for _ in range(at_once):
            run()
        ended.record()
        ended.synchronize()
        found.append(1e-3 * cp.cuda.get_elapsed_time(began, ended) / at_once)
    return found[1:]


def words_apart(function: Callable[..., Any], *given: Any) -> list[str]:
    """The command of a process in which a function of a case is called with plain data."""
    return [sys.executable, "-m", "benchmarks.apart", f"{function.__module__}:{function.__name__}", json.dumps(given)]


def environment_apart(threads: int | None = None) -> dict[str, str]:
    """The environment of such a process, in which BLAS may have so many threads."""
    limits = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS") if threads else ()
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, **dict.fromkeys(limits, str(threads))}


def apart(
    function: Callable[..., Any], *given: Any, seconds: float | None = None, threads: int | None = None, must: bool = False
) -> dict[str, Any]:
    """Call a function of a case with plain data, in a process of its own.

    Where it fails or takes too long, why: as ``failed``, or for what ``must`` end well as an error.
    """
    words, environment = words_apart(function, *given), environment_apart(threads)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {seconds:g} s"}
    if done.returncode and must:
        raise RuntimeError(f"{function.__name__} ended with {done.returncode}:\n{done.stderr}")
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1][:300]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def versions(*packages: str) -> dict[str, str | None]:
    """Versions of packages; None where one is not installed."""
    found: dict[str, str | None] = dict.fromkeys(packages)
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
