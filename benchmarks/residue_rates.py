"""Sustained rates of the INT8 products behind FP64 residues on one GPU: by cuBLASLt's kernels, by shape, and through Strassen.

Both cases take some two minutes on an H200. Prints one JSON line a figure, and on standard error the seconds of each case.
Rates are those of the FP64 product that all planes stand for, ``2 M N K`` over the seconds of all planes. The GPU is kept busy
from case to case: its clock follows its power.

M is one tile row of 2048, N some tiles of a panel, K a chunk of tile columns. *Strassen* is Winograd's form, seven products for
eight; it is exact, because sums of residues are made residues again. The partial products of all chunks would stay in seven
accumulators until a tile is reconstructed, so that a chunk costs no passes over blocks of the sum.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np

from benchmarks.int8_kernels import COMPUTE_32I, NO_TRANSPOSE, ONE, R_8I, R_32I, TRANSPOSE, Products
from benchmarks.residue_forms import Shape, source
from benchmarks.running import Later, Options, Parser
from ooc_chol.bench.meters import GpuMeter
from ooc_chol.precision.moduli import ResidueBasis

FOLDER = "residue_rates"
cp, cublas, cublasLt, cuda = map(Later, ("cupy", "nvmath.bindings.cublas", "nvmath.bindings.cublasLt", "ooc_chol.hardware.cuda"))

TILE = 2048
DEVICE = "cuda:0"
#: cuBLAS chooses by itself.
_DEFAULT = -1
_THREADS, _WIDE = 128, 16
#: Seconds of one group of calls, of which two are in flight.
_GROUP_SECONDS = 0.05


class Kernels:
    """The kernels of ``residue_forms.cu`` for one basis."""

    def __init__(self, basis: ResidueBasis) -> None:
        self._module = cp.RawModule(code=source(basis), options=("--std=c++17",))
        self._planes = basis.count

    def residues(self, rows: int, inner: int, seed: int) -> Any:
        """Uniform canonical residues."""
        out = cp.empty((self._planes, rows, inner), cp.int8)
        grid = (_blocks(rows * inner, _WIDE * _THREADS),)
        self._run("fill", grid, (out, np.int64(rows * inner), np.int32(self._planes), np.uint64(seed), np.int32(0)))
        return out

    def factors(self, strip: Any, out: Any, half: int, *, is_right: bool) -> None:
        """The seven factors of each plane of a strip, split inside tiles of order ``2 * half``."""
        planes, rows, inner = strip.shape
        grid = (_blocks(inner // 2, _WIDE * _THREADS), min(rows // 2, 65535), planes)
        sizes = np.int64(rows), np.int64(inner), np.int32(planes), np.int32(half), np.int32(half), np.int32(is_right)
        self._run("factors", grid, (strip, out, *sizes))

    def combine(self, sevenths: Any, out: Any, half: int) -> None:
        """The products mod m_p from their seven partial products."""
        planes, rows, columns = out.shape
        grid = (_blocks(columns // 2, _THREADS), min(rows // 2, 65535), planes)
        sizes = np.int64(rows), np.int64(columns), np.int32(planes), np.int32(half), np.int32(half)
        self._run("combine", grid, (sevenths, out, *sizes))

    def different(self, sums: Any, residues: Any) -> int:
        """Entries of ``sums`` that are not ``residues`` mod m_p."""
        found = cp.zeros(1, cp.uint64)
        self._run("count_different", (512, self._planes), (sums, residues, np.int64(sums[0].size), found))
        return int(found[0])

    def _run(self, name: str, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        self._module.get_function(name)(grid, (_THREADS,), arguments)


class Bench:
    """One GPU, kept busy, and the figures that are printed."""

    def __init__(self, moduli: int, seconds: float) -> None:
        self.basis = ResidueBasis(moduli)
        self.kernels = Kernels(self.basis)
        self.seconds, self.lines = seconds, list[dict[str, Any]]()
        self.lt, self.handle = int(cublasLt.create()), int(cublas.create())
        self.workspace = cp.cuda.Memory(Later("ooc_chol.kernels.cuda").CUBLAS_WORKSPACE_BYTES)
        cublas.set_stream(self.handle, cp.cuda.get_current_stream().ptr)

    def print(self, **figures: Any) -> None:
        """One JSON line, which is kept."""
        self.lines.append(figures)
        print(json.dumps(figures), flush=True)

    def rate(self, enqueue: Callable[[], None], flops: float, seconds: float) -> dict[str, Any]:
        """Rate, power and clock while ``enqueue`` is called again and again, after a quarter of the time for the clock."""
        _repeat(enqueue, 0.25 * seconds, lambda: None)
        meter = GpuMeter([cuda.nvml_handle(DEVICE)])
        with meter:
            each, wall = _repeat(enqueue, seconds, meter.sample)
        figures = meter.figures()
        return {
            "tflops": round(flops / each / 1e12, 2),
            "watts": round(figures["joules"] / wall),
            "joules_per_tflop": round(figures["joules"] / wall * each / flops * 1e12, 2),
            "mhz": figures["clock_mhz"][0],
        }

    def default(self, left: Any, right: Any, sums: Any) -> Callable[[], None]:
        """One call a plane, cuBLAS's own choice, as the engine's long products had it until their kernel was chosen."""
        planes, rows, inner = left.shape
        columns = right.shape[1]

        def enqueue() -> None:
            for p in range(planes):
                at = [array.data.ptr + p * array.strides[0] for array in (right, left, sums)]
                cublas.gemm_ex(
                    self.handle, TRANSPOSE, NO_TRANSPOSE, columns, rows, inner, ONE.ctypes.data, at[0], R_8I, inner, at[1],
                    R_8I, inner, ONE.ctypes.data, at[2], R_32I, columns, COMPUTE_32I, _DEFAULT,
                )  # fmt: skip

        return enqueue

    def products(self, shape: Shape, *, is_batch: bool) -> Products:
        """Products of a shape by cuBLASLt."""
        return Products(self.lt, self.workspace, shape, is_batch=is_batch)

    def best(self, label: str, products: Products, operands: tuple[Any, Any, Any], flops: float) -> int:
        """The fastest of cuBLASLt's kernels, each of which is measured for a fifth of the time."""
        rates = []
        for number in range(len(products)):
            figures = self.rate(partial(products.enqueue, number, *operands), flops, self.seconds / 5)
            self.print(search=label, kernel=products.describe(number), **figures)
            rates.append(figures["tflops"])
        return int(np.argmax(rates))

    def close(self) -> None:
        """Destroy the handles."""
        cublasLt.destroy(self.lt)
        cublas.destroy(self.handle)


def _blocks(entries: int, each: int) -> int:
    return -(-entries // each)


def _repeat(enqueue: Callable[[], None], seconds: float, sample: Callable[[], object]) -> tuple[float, float]:
    """Seconds of one call by events, and of all on the host's clock, with two groups of calls in flight for ``seconds``."""
    began = time.monotonic()
    start, flying, count, group = _event(), deque[Any](), 0, 1
    while time.monotonic() - began < seconds or len(flying) < 2:
        group_began = time.monotonic()
        for _ in range(group):
            enqueue()
        count += group
        flying.append(_event())
        if len(flying) > 2:
            flying.popleft().synchronize()
            sample()
            if time.monotonic() - group_began < 0.5 * _GROUP_SECONDS:
                group *= 2
    end = flying[-1]
    end.synchronize()
    return float(cp.cuda.get_elapsed_time(start, end)) / 1e3 / count, time.monotonic() - began


def _event() -> Any:
    event = cp.cuda.Event(block=True)
    event.record()
    return event


class Operands:
    """A strip of one tile row, the strips of a panel, and their sums; and the same as factors of partial products."""

    def __init__(self, bench: Bench, s: Shape) -> None:
        self._kernels, h = bench.kernels, s.halves(1)
        left, right = bench.kernels.residues(s.rows, s.inner, seed=1), bench.kernels.residues(s.columns, s.inner, seed=2)
        self.plain = left, right, cp.zeros((s.planes, s.rows, s.columns), cp.int32)
        factors = [cp.empty((h.planes, rows, h.inner), cp.int8) for rows in (h.rows, h.columns)]
        self.strassen = *factors, cp.zeros((h.planes, h.rows, h.columns), cp.int32)
        bench.kernels.factors(right, factors[1], TILE // 2, is_right=True)

    def split(self) -> None:
        """The factors of the left strip: once for each row and panel."""
        self._kernels.factors(self.plain[0], self.strassen[0], TILE // 2, is_right=False)

    def combined(self) -> Any:
        """The product's residues from the partial products."""
        out = cp.empty_like(self.plain[2])
        self._kernels.combine(self.strassen[2], out, TILE // 2)
        return out


def compare(bench: Bench, tiles: int, inner: int) -> None:
    """Plain products against Strassen's at one shape: kernels, equality mod every modulus, sustained rates in turn."""
    shape = Shape(bench.basis.count, TILE, tiles * TILE, inner)
    name = {"M": shape.rows, "N": shape.columns, "K": inner}
    operands = Operands(bench, shape)
    operands.split()
    ways = {"planes, cuBLAS's choice": bench.default(*operands.plain)}
    with (
        closing(bench.products(shape, is_batch=False)) as planes,
        closing(bench.products(shape, is_batch=True)) as batch,
        closing(bench.products(shape.halves(1), is_batch=True)) as strassen,
    ):
        for label, products in (("planes", planes), ("batch", batch)):
            number = bench.best(f"{label} {name}", products, operands.plain, shape.flops)
            ways[f"{label}, best"] = partial(products.enqueue, number, *operands.plain)
        number = bench.best(f"strassen 1 {name}", strassen, operands.strassen, shape.flops)
        multiply = partial(strassen.enqueue, number, *operands.strassen)
        _check(bench, operands, multiply, name)

        def split_and_multiply() -> None:
            operands.split()
            multiply()

        ways |= {"strassen 1, products": multiply, "strassen 1, with left sums": split_and_multiply}
        for turn in range(2):
            for label, enqueue in ways.items():
                bench.print(way=label, turn=turn, **name, **bench.rate(enqueue, shape.flops, bench.seconds))
        _passes(bench, operands, name)


def _check(bench: Bench, operands: Operands, multiply: Callable[[], None], name: dict[str, int]) -> None:
    """Exact equality of Strassen's product with the plain one, of every entry and plane."""
    sums = operands.plain[2]
    for each in (sums, operands.strassen[2]):
        each.fill(0)
    bench.default(*operands.plain)()
    multiply()
    different = bench.kernels.different(sums, operands.combined())
    bench.print(check="strassen 1", **name, entries=sums.size, different=different)
    if different:
        raise RuntimeError(f"{different} of {sums.size} residues of Strassen's product differ from the plain product's")


def _passes(bench: Bench, operands: Operands, name: dict[str, int]) -> None:
    """What is done beside products: picoseconds an entry of the left strip, and of the product."""
    for label, work, entries in (
        ("left sums", operands.split, operands.plain[0][0].size),
        ("combine", operands.combined, operands.plain[2][0].size),
    ):
        each, _ = _repeat(work, 0.3, lambda: None)
        bench.print(pass_over=label, **name, ps_an_entry=round(1e12 * each / entries, 2))


def plain(bench: Bench, m: int, n: int, inner: int, seconds: float, way: str = "planes, cuBLAS's choice") -> None:
    """Sustained plain products of one shape."""
    left, right = bench.kernels.residues(m, inner, seed=1), bench.kernels.residues(n, inner, seed=2)
    enqueue = bench.default(left, right, cp.zeros((bench.basis.count, m, n), cp.int32))
    bench.print(way=way, M=m, N=n, K=inner, **bench.rate(enqueue, 2.0 * m * n * inner, seconds))


def warm(bench: Bench) -> None:
    """Products for ten seconds, so that what follows is measured hot."""
    plain(bench, TILE, 4 * TILE, 16384, 8.0, "planes, cuBLAS's choice, to warm up")


def shapes(bench: Bench) -> None:
    """Plain products of more rows at once, longer K, other widths."""
    for rows, columns, inner in ((1, 4, 32768), (2, 4, 32768), (4, 8, 32768), (1, 4, 65536), (1, 5, 32768), (1, 8, 65536)):
        plain(bench, rows * TILE, columns * TILE, inner, bench.seconds)


#: What is measured, by name.
CASES: dict[str, Callable[[Bench], None]] = {"narrow": lambda bench: compare(bench, 4, 32768), "shapes": shapes}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), default=list(CASES), help="what is measured (default: all)")
    parser.add_argument("--moduli", type=int, default=13)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each sustained rate")
    parser.set_defaults(devices=(DEVICE,))


def run(options: Options) -> dict[str, Any]:
    """Run the cases, and print a line for each figure."""
    with closing(Bench(options.moduli, options.seconds)) as bench:
        properties = cp.cuda.runtime.getDeviceProperties(0)
        about = {"gpu": properties["name"].decode(), "cupy": cp.__version__, "cublas": cublas.get_version(bench.handle)}
        bench.print(**about, moduli=bench.basis.moduli, seconds=options.seconds)
        for name, case in {"warm": warm, **{name: CASES[name] for name in options.cases}}.items():
            began = time.monotonic()
            case(bench)
            cp.get_default_memory_pool().free_all_blocks()
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        return {"lines": bench.lines}
