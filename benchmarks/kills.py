"""Kill runs at random moments, go on from their checkpoints, and compare the bits with those of runs left in peace.

Every engine of factorizations has a case, and so have eigenpairs and singular triplets. A case is run in peace once; then, again
and again, a child runs with a checkpoint and is killed, one that goes on is killed again, and the last one ends, with another
budget, policy or number of devices, and must give the same bits. A child dies in one of three ways: by SIGKILL at a random time;
at a random write of its file, of which half is done (a torn tile); or at a random write that is not done at all. Prints a line
for each case.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.ma  # as reading A imports it
from numpy.typing import NDArray
from scipy.sparse import csr_array

import ooc_chol as oc
from benchmarks.running import Options, apart

FOLDER = "checkpoints"
N, NB = 480, 48
#: Most kills before a factorization is left to end.
MOST_IN_A_ROW = 3
#: Seconds after which a child hangs.
HANG = 120.0
#: A way to die: the number of the write at which, and whether half of it is done; or None, by SIGKILL from outside.
Death = tuple[int, bool] | None


@dataclass
class Case:
    """A problem, how it is solved, and how else it is gone on with at last."""

    a: Any
    options: dict[str, Any]
    others: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    solve: Callable[..., Any] | None = None  #: In place of a factorization: its checkpoint stays


@dataclass
class Outcome:
    """How a child ended: its digest, what its report says, or its error; nothing where it was killed."""

    status: int
    told: dict[str, Any]
    seconds: float


def cauchy(n: int, correlation_range: float, power: int, nugget: float) -> NDArray[np.float64]:
    """Covariance ``(1 + (d / range)**2)**-power`` of points along a curve."""
    steps = np.arange(n, dtype=float) / n
    x, y = steps, (steps * 7.0) % 1.0 / 16.0
    squares = (x[:, None] - x) ** 2 + (y[:, None] - y) ** 2
    return (1.0 + squares / correlation_range**2) ** -power + nugget * np.eye(n)


def hermitian(n: int) -> NDArray[np.complex128]:
    """A covariance with phases: Hermitian, with entries that are not real."""
    phases = np.exp(0.3j * np.arange(n))
    return cauchy(n, 0.05, 2, 1e-3) * np.outer(phases, phases.conj())


def indefinite(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix with a minor that is not positive definite: that must be found whenever the run was killed."""
    return a - 0.9 * np.diag(np.arange(len(a)) == 300)


def adjacency(n: int) -> csr_array:
    """A random graph."""
    rows, columns = np.random.default_rng(3).integers(0, n, (2, 3 * n))
    a = csr_array((np.ones(3 * n), (rows, columns)), shape=(n, n))
    return csr_array(a + a.T)


def solves() -> dict[str, Case]:
    """Eigenpairs and singular triplets, of some restarts each."""
    two, graph = {"devices": ["host:0", "host:1"]}, adjacency(N)
    options = {"k": 4, "ncv": 28, "tol": 1e-6, "block": 2, "devices": "host:0"}
    return {
        "eigenpairs": Case(graph, {**options, "which": "LA"}, [{}, two, {"memory_budget": "16 MiB"}], oc.eigsh),
        "triplets": Case(graph[: N // 2], options, [{}, two], oc.svds),
    }


def cases() -> dict[str, Case]:
    """The cases by name: every engine, what happens to a factorization in mixed precision, and eigensolvers."""
    native = {"tile_size": NB, "devices": "host:0", "memory_budget": "512 KiB"}
    residue = {**native, "fp64": "residue", "memory_budget": "8 MiB"}
    two, large = {"devices": ["host:0", "host:1"]}, {"memory_budget": "2 MiB"}
    easy, hard = cauchy(N, 0.05, 2, 1e-3), cauchy(N, 0.2, 3, 1e-5)
    narrow = {**residue, "precision_threshold": 1e-3, "moduli": 8, "half_products": True}
    return {
        "native": Case(easy, native, [{}, two, large, {"policy": "v2"}]),
        "native, two devices": Case(easy, {**native, **two}, [{}, {"devices": "host:0"}]),
        "native, defaults": Case(easy, {"devices": "host:0"}, [{}, {"memory_budget": "3 MiB"}]),
        "native, memory over file": Case(easy, {**native, "host_budget": "400 KiB"}, [{}, {"host_budget": "800 KiB"}]),
        "mixed, memory over file": Case(easy, {**native, "precision_threshold": 1e-4, "host_budget": "200 KiB"}),
        "residue": Case(easy, residue, [{}, two, {"memory_budget": "12 MiB"}]),
        "mixed": Case(easy, {**native, "precision_threshold": 1e-4}, [{}, two, large]),
        "mixed residue": Case(easy, {**residue, "precision_threshold": 1e-4, "moduli": 8}, [{}, two]),
        "mixed residue, FP16": Case(cauchy(2 * N, 0.05, 2, 1e-3), {**narrow, "tile_size": 2 * NB}),
        "escalated": Case(hard, {**native, "precision_threshold": 1e-4}),
        "escalated to FP64": Case(cauchy(N, 0.4, 3, 1e-7), {**native, "precision_threshold": 1e-5}),
        "escalated residue": Case(hard, {**residue, "precision_threshold": 1e-4}),
        "indefinite": Case(indefinite(easy), native, [{}, two]),
        "indefinite residue": Case(indefinite(easy), residue),
        "complex128": Case(hermitian(N), native, [{}, two, large]),
        "float32": Case(easy, {**native, "dtype": "float32"}, [{}, two]),
        **solves(),
    }


def factored(case: Case, more: dict[str, Any], path: Path) -> dict[str, Any]:
    """Factor, or solve, with a checkpoint: the digest of the result, and what was there of it."""
    if case.solve is not None:
        found = case.solve(case.a, checkpoint=path, **{**case.options, **more})
        parts = [np.ascontiguousarray(part).tobytes() for part in (*found, found.residuals)]
        return {"sha256": hashlib.sha256(b"".join(parts)).hexdigest(), "resumed": found.report.resumed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            factor = oc.cholesky(case.a, checkpoint=path, lower=True, **{**case.options, **more})
        except oc.NotPositiveDefiniteError as error:
            return {"sha256": f"minor {error.minor}"}
    with factor:
        digest = hashlib.sha256(np.ascontiguousarray(np.asarray(factor)).tobytes()).hexdigest()
        report, bound = factor.report, factor.report.certified_bound
        found = {"sha256": digest, "bytes": path.stat().st_size, "resumed": report.resumed}
        return found | {"escalations": len(report.escalations), "bound": None if bound is None else bound.total}


def die_at(death: Death) -> Counter[str]:
    """Let this process die at one of its writes; returns the counter of these."""
    counts, write = Counter[str](), os.pwrite

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        counts["writes"] += 1
        if death is not None and counts["writes"] == death[0]:
            if death[1]:
                write(descriptor, memoryview(data).cast("B")[: memoryview(data).nbytes // 2], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return write(descriptor, data, offset)

    os.pwrite = pwrite
    return counts


def child(case: Case, more: dict[str, Any], path: Path, death: Death = None, after: float | None = None) -> Outcome:
    """Factor in a process of its own, which dies at a write, or is killed after so many seconds, or ends."""
    reader, writer = os.pipe()
    began = time.monotonic()
    if (pid := os.fork()) == 0:
        try:
            counts = die_at(death)
            told = {**factored(case, more, path), "writes": counts["writes"]}
        except BaseException:
            told = {"error": traceback.format_exc()}
        os.write(writer, json.dumps(told).encode()[:60000])
        os._exit(0)
    os.close(writer)
    try:
        status = wait(pid, began, after)
        content = os.read(reader, 1 << 20)
    finally:
        os.close(reader)
    return Outcome(status, json.loads(content) if content else {}, time.monotonic() - began)


def wait(pid: int, began: float, after: float | None) -> int:
    """Wait for a child to end, which is killed after so many seconds."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        if after is not None and seconds >= after:
            os.kill(pid, signal.SIGKILL)
            after = None
        if seconds > HANG:
            os.kill(pid, signal.SIGKILL)
            raise TimeoutError(f"a child hangs since {HANG:g} s")
        time.sleep(2e-4)


def tortured(case: Case, calm: Outcome, path: Path, draw: random.Random, ways: Counter[str]) -> tuple[str, int]:
    """Kill, go on, kill again, and let end: what is wrong (nothing where all is right), and how often it was killed."""
    kills = 0
    for _ in range(draw.randint(1, MOST_IN_A_ROW)):
        if draw.random() < 0.4:
            way, death, after = "time", None, draw.uniform(0.0, calm.seconds)
        else:
            way = draw.choice(["torn write", "write"])
            death, after = (draw.randint(1, calm.told["writes"]), way == "torn write"), None
        ended = child(case, {}, path, death, after)
        if ended.status == -signal.SIGKILL:
            kills += 1
            ways[way] += 1
        elif "error" in ended.told:
            return ended.told["error"], kills
        if ended.status == 0 or (case.solve is None and path.exists()):
            break
    more = draw.choice(case.others)
    last = child(case, more, path)
    wrong = last.told.get("error") or ("" if last.told.get("sha256") == calm.told["sha256"] else f"other bits, with {more}")
    left = [name for name in os.listdir(path.parent) if name != path.name]
    return wrong or (f"left behind: {left}" if left else ""), kills


def kill_all(kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill until there were so many kills; what was found, by case."""
    draw, found, table = random.Random(seed), {}, cases()
    oc.plan(N, tile_size=NB, devices="host:0")  # modules that all children need; no thread is started by planning
    calms = {}
    for name, case in table.items():
        calms[name] = child(case, {}, folder / "calm")
        assert "sha256" in calms[name].told, calms[name].told
        (folder / "calm").unlink(missing_ok=True)
        found[name] = {"kills": 0, "resumed": 0, "wrong": [], **calms[name].told}
    ways = Counter[str]()
    while sum(each["kills"] for each in found.values()) < kills:
        name = min(found, key=lambda name: found[name]["kills"])
        wrong, killed = tortured(table[name], calms[name], folder / "L", draw, ways)
        found[name]["kills"] += killed
        found[name]["resumed"] += not wrong
        found[name]["wrong"] += [wrong] * bool(wrong)
        for path in folder.iterdir():
            path.unlink()
    return {"cases": found, "ways": dict(ways)}


def killed(kills: int, seed: int) -> dict[str, Any]:
    """Kill so often, from a process whose BLAS has one thread: one with threads is no good parent."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = kill_all(kills, seed, Path(folder))
    counts = {"kills": sum(each["kills"] for each in found["cases"].values())}
    counts["wrong"] = sum(len(each["wrong"]) for each in found["cases"].values())
    return {**counts, "seconds": round(time.monotonic() - began, 1), **found}


TAKES = {"kills": 220, "seed": 0}


def run(options: Options) -> int:
    """Kill, and tell; status 1 where a factor had other bits."""
    found = apart(killed, options.kills, options.seed, threads=1, must=True)
    for name, each in found["cases"].items():
        print(
            f"{name}: {each['kills']} kills, {each['resumed']} results to the same bits, {len(each['wrong'])} wrong",
            *each["wrong"][:1],
        )
    options.write({"case": "kills", **found})
    return int(found["wrong"] > 0)
