"""What is run while calls fail: every engine, every place for L, and what is done with a factor. One entry each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import ooc_chol as oc
from tests.builders import device_solver
from tests.host.escalation_cases import with_twins
from tests.inside.dense import LocalPlace
from tests.inside.ground import parse_bytes

N, NB = 80, 32
_DISTANCE = np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
A = np.exp(-_DISTANCE / 10.0) + 0.1 * np.eye(N)
#: Two rows are so alike that a pivot fails in narrow formats.
NEARLY_SINGULAR = with_twins(A, ((3, 77),), 1e-6)
#: Three tiles of FP64, half of L.
TIGHT: dict[str, Any] = {"tile_size": NB, "memory_budget": "30 kB", "devices": "host:0"}
ROOMY: dict[str, Any] = {"tile_size": NB, "memory_budget": "400 kB", "devices": "host:0"}
#: Three tiles of FP64 on the device, and in host memory about half of an L that ends in a file.
TIERED: dict[str, Any] = {"tile_size": 16, "memory_budget": "13 kB", "host_budget": "30 kB", "devices": "host:0"}
B = np.linspace(-1.0, 1.0, 2 * N).reshape(N, 2)


class Folder:
    """The files of one campaign: A, a factor of A, and at the name where L goes an older factor, of another matrix."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.a, self.made, self.store = root / "a.npy", root / "made.factor", root / "L.factor"
        self.mixed, self.kept = root / "mixed.factor", root / "K.factor"
        self.array = root / "L.npy"
        for name, content in _first_files().items():
            (root / name).write_bytes(content)

    def forget_checkpoint(self) -> None:
        """Remove what is kept of a run that ended early, or of one that was gone on with."""
        for path in self.kept.parent.glob(f"{self.kept.name}*"):
            path.unlink()

    def contents(self) -> dict[str, bytes]:
        """All files, with what is in them."""
        return {path.name: path.read_bytes() for path in sorted(self.root.iterdir())}


@cache
def _first_files() -> dict[str, bytes]:
    """What is in every folder before anything runs, by name: made once in a process, as this takes half of a campaign's time."""
    with TemporaryDirectory() as name:
        root = Path(name)
        np.save(root / "a.npy", A)
        oc.cholesky(A, **TIGHT, store=root / "made.factor").close()
        oc.cholesky(A, 1e-4, **ROOMY, store=root / "mixed.factor").close()
        oc.cholesky(np.eye(40), tile_size=16, store=root / "L.factor").close()
        return {path.name: path.read_bytes() for path in root.iterdir()}


@dataclass(frozen=True)
class Scenario:
    """Something that a user does, which returns what must be the same, to the bit, whenever it succeeds."""

    name: str
    run: Callable[[Folder], bytes]
    makes: str = ""  #: Name of the file that is there when it has succeeded
    is_kept: bool = False  #: Whether the file that is unfinished when it has failed stays, and the same call goes on from it


def _factored(a: Callable[[Folder], Any], *, stored: bool = False, **options: Any) -> Callable[[Folder], bytes]:
    def run(folder: Folder) -> bytes:
        store = {"store": folder.store} if stored else {}
        with oc.cholesky(a(folder), **{**TIGHT, **options, **store}) as factor:
            return bytes(np.asarray(factor).tobytes())

    return run


def _kept(**options: Any) -> Callable[[Folder], bytes]:
    def run(folder: Folder) -> bytes:
        with oc.cholesky(folder.a, checkpoint=folder.kept, **{**TIGHT, **options}) as factor:
            return bytes(np.asarray(factor).tobytes())

    return run


def _in_memory(_: Folder) -> Any:
    return A


def _in_file(folder: Folder) -> Any:
    return folder.a


def _by_function(_: Folder) -> Any:
    def tile(rows: range, cols: range, out: Any, stream: Any) -> None:
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]

    return oc.from_function(N, tile)


def _over_a(_: Folder) -> bytes:
    a = A.copy()
    with oc.cholesky(a, overwrite=True, **TIGHT) as factor:
        return bytes(np.asarray(factor).tobytes())


def _in_lent_memory(_: Folder) -> bytes:
    with oc.HostMemory() as memory, oc.cholesky(A, store=memory, **TIGHT) as factor:
        return bytes(np.asarray(factor).tobytes())


def _batch(_: Folder) -> bytes:
    with oc.cholesky(np.stack([A, 2 * A])) as factors:
        return bytes(np.asarray(factors.solve(np.stack([B, B]))).tobytes())


def _with_loaded(use: Callable[[Any, Folder], Any], name: str = "made") -> Callable[[Folder], bytes]:
    def run(folder: Folder) -> bytes:
        with oc.load(getattr(folder, name)) as factor:
            return bytes(np.asarray(use(factor, folder)).tobytes())

    return run


def _saved(factor: Any, folder: Folder) -> Any:
    factor.save(folder.store)
    return np.fromfile(folder.store, np.uint8)


def _saved_as_array(factor: Any, folder: Folder) -> Any:
    factor.save(folder.array)
    dense = np.load(folder.array)
    folder.array.unlink()
    return dense


def _updated(factor: Any, folder: Folder) -> Any:
    factor.update(0.1 * B, store=folder.store).close()
    return np.fromfile(folder.store, np.uint8)


def _half_solve_sums(factor: Any, folder: Folder) -> Any:
    return factor.half_solve_sums(_by_function(folder), range(8), B).squares


def _on_device(use: Callable[[Any], Any]) -> Callable[[Folder], bytes]:
    """What a factor does on a device of its own, as after a factorization on a GPU."""

    def run(folder: Folder) -> bytes:
        with oc.load(folder.made) as factor:
            factor._place = LocalPlace(device_solver("host:0", parse_bytes("200 kB", "")))
            return bytes(np.asarray(use(factor)).tobytes())

    return run


_WIDE = np.linspace(-1.0, 1.0, 40 * N).reshape(N, 40)

#: Everything that makes a factor.
ENGINES = [
    Scenario("native, memory", _factored(_in_memory)),
    Scenario("native, file to file", _factored(_in_file, stored=True), "L.factor"),
    Scenario("native, function to file", _factored(_by_function, stored=True), "L.factor"),
    Scenario("native, two devices", _factored(_in_memory, devices=2)),
    Scenario("native, over A", _over_a),
    Scenario("native, lent memory", _in_lent_memory),
    Scenario("paper's v1, memory", _factored(_in_memory, policy="v1")),
    Scenario("residue, file to file", _factored(_in_file, stored=True, fp64="residue", **ROOMY), "L.factor"),
    Scenario("residue, two devices", _factored(_in_memory, **{**ROOMY, "fp64": "residue", "devices": 2})),
    Scenario("mixed, file to file", _factored(_in_file, stored=True, precision_threshold=1e-4, **ROOMY), "L.factor"),
    Scenario("mixed, memory", _factored(_in_memory, precision_threshold=1e-4, **ROOMY)),
    Scenario("mixed residue, memory", _factored(_in_memory, precision_threshold=1e-4, fp64="residue", **ROOMY)),
    Scenario("escalating, memory", _factored(lambda _: NEARLY_SINGULAR, precision_threshold=1e-1, **ROOMY)),
    Scenario("float32, file to file", _factored(_in_file, stored=True, dtype="float32"), "L.factor"),
    Scenario("memory over file", _factored(_in_file, stored=True, **TIERED), "L.factor"),
    Scenario("checkpoint, file to file", _kept(), "K.factor", is_kept=True),
    Scenario("checkpoint, mixed, file to file", _kept(precision_threshold=1e-4, **ROOMY), "K.factor", is_kept=True),
    Scenario("checkpoint, memory over file", _kept(**TIERED), "K.factor", is_kept=True),
    Scenario("complex, memory", _factored(lambda _: A + 0j, **ROOMY)),
    Scenario("whole, memory", _factored(_in_memory, tile_size=None, memory_budget=None)),
    Scenario("whole, from file", _factored(_in_file, tile_size=None, memory_budget=None)),
    Scenario("batch", _batch),
]

#: What is done with a factor that lies in a file.
PASSES = [
    Scenario("solve", _with_loaded(lambda factor, _: factor.solve(B))),
    Scenario("solve, mixed", _with_loaded(lambda factor, _: factor.solve(B), "mixed")),
    Scenario("solve, refined", _with_loaded(lambda factor, folder: factor.solve(B, refine=True, a=folder.a), "mixed")),
    Scenario("product", _with_loaded(lambda factor, _: factor.matmul(B))),
    Scenario("logdet", _with_loaded(lambda factor, _: factor.logdet())),
    Scenario("dense", _with_loaded(lambda factor, _: np.asarray(factor), "mixed")),
    Scenario("condition", _with_loaded(lambda factor, _: factor.cond())),
    Scenario("inverse diagonal", _with_loaded(lambda factor, _: factor.inverse_diagonal())),
    Scenario("half-solve sums", _with_loaded(_half_solve_sums)),
    Scenario("residual", _with_loaded(lambda factor, folder: factor.residual(folder.a, blocks=4).max_scaled)),
    Scenario("save", _with_loaded(_saved), "L.factor"),
    Scenario("save, mixed", _with_loaded(_saved, "mixed"), "L.factor"),
    Scenario("save as array", _with_loaded(_saved_as_array)),
    Scenario("update", _with_loaded(_updated), "L.factor"),
    Scenario("solve on a device", _on_device(lambda factor: factor.solve(_WIDE))),
    Scenario("inverse diagonal on a device", _on_device(lambda factor: factor.inverse_diagonal())),
]
