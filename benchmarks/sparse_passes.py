"""Products with a packed sparse matrix, streamed and in core: seconds of a pass, bytes planned and executed, share of the link.

The matrix, one of GAP's random graphs or a packed file, is packed once and in host memory for all passes: each is
BUDGET:COLUMNS:PRECISION, with ``@2`` behind it on the first two of the devices; ``all`` is the budget of a free device. A pass
is one product of ``Multiplier.apply(x, times=K)`` of a matrix divided by its longest row, timed by events on the devices; the
first ones are not counted. Yardsticks of the same run: on GPUs copies of page-locked memory, on the host SciPy's product on one
thread. ``--file`` packs the matrix into a file, too, and multiplies from it with an eighth of its bytes as budget, once with
its pages dropped from the system's cache before every pass and once with them there, beside reading the file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, final

import numpy as np
import xxhash
from numpy.typing import NDArray

import ooc_chol as oc
from benchmarks.running import Options, Parser, attempt, drop_pages, event_seconds, seconds_of
from ooc_chol.config import format_bytes
from ooc_chol.hardware.registry import device_kind, resolve_devices
from ooc_chol.sparse.rows import AbstractRows, Rows

FOLDER = "sparse"
#: Random numbers that X repeats, and bytes that are read at once where a file is.
DISTINCT, READ_BYTES = 1 << 20, 8 << 20
#: Budget of a product from a file, as a part of its bytes beside vectors, and blocks in which such a file is packed.
FILE_SHARE, FILE_BLOCKS = 8, 32


@final
class Valued(AbstractRows):
    """A graph with values of another kind than ones, a function of the first row of each run of rows."""

    def __init__(self, graph: oc.testing.RandomGraph, dtype: np.dtype[Any]) -> None:
        self.name, self.shape, self.expected_entries = f"{graph.name} of {dtype}", graph.shape, graph.expected_entries
        self._graph, self._dtype, self.counts = graph, dtype, graph.counts

    def runs(self) -> Iterator[Rows]:
        """Rows of the graph."""
        for rows in self._graph.runs():
            rng = np.random.default_rng(rows.first_row)
            values = 1 + rng.random(len(rows.columns), np.float32 if self._dtype == np.float32 else np.float64)
            yield rows._replace(values=values)


class PassCase(NamedTuple):
    """One setting."""

    text: str
    budget: str | None
    columns: int
    precision: oc.Precision
    n_devices: int


def pass_case(text: str) -> PassCase:
    """``BUDGET:COLUMNS:PRECISION[@DEVICES]``."""
    setting, _, count = text.partition("@")
    try:
        budget, columns, precision = setting.split(":")
        return PassCase(text, None if budget == "all" else budget, int(columns), oc.Precision(precision), int(count or 1))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not BUDGET:COLUMNS:PRECISION[@DEVICES] ({error})") from error


def vectors(n: int, columns: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """X of numbers between 0 and 1, so many distinct ones over and over: made at the rate of the memory."""
    some = np.random.default_rng(0).random(min(DISTINCT, n * columns), dtype)
    return np.resize(some, (n, columns))


def columns_of(x: Any) -> Any:
    """A panel as other libraries take it: one column as a vector."""
    return x[:, 0].copy() if x.shape[1] == 1 else x


def scaled(matrix: oc.BlockCSR) -> oc.Operator:
    """The matrix divided by its longest row: no power of it grows."""
    return oc.Operator(matrix, left=1.0 / max(1, matrix.longest_row))


def measure_pass(matrix: oc.BlockCSR, case: PassCase, names: Sequence[str], times: int, trace: Path | None) -> dict[str, Any]:
    """Seconds of every pass of one setting, its bytes, and a hash of what came out."""
    x = vectors(matrix.shape[1], case.columns, case.precision.storage)
    where: dict[str, Any] = {"precision": case.precision, "devices": names[: case.n_devices], "memory_budget": case.budget}
    began = time.perf_counter()
    with oc.multiplier(scaled(matrix), case.columns, **where) as m:
        opened = time.perf_counter() - began
        m.apply(x, times=2)
        first = time.perf_counter() - began - opened
        before = len(m.report.scan_seconds)
        began = time.perf_counter()
        y = m.apply(x, times=times)
        call = time.perf_counter() - began
        found = told(m, m.report.scan_seconds[before:]) | {"open_seconds": opened, "first_seconds": first, "call_seconds": call}
    if trace is not None:
        with oc.multiplier(scaled(matrix), case.columns, **where, trace=True) as m:
            m.apply(x, times=3)
            assert m.trace is not None
            print(m.trace.summary(), m.trace.save(trace, replace=True), sep="\n", flush=True)
    about = {"setting": case.text, "columns": case.columns, "precision": case.precision.value}
    return about | found | {"xxh3": xxhash.xxh3_64_hexdigest(np.ascontiguousarray(y)), "norm": float(np.linalg.norm(y))}


def told(m: oc.Multiplier, seconds: Sequence[float]) -> dict[str, Any]:
    """Figures of a multiplier whose passes took these seconds."""
    plan, report = m.plan, m.report
    return {
        "devices": list(plan.devices),
        "budget_bytes": plan.budget_bytes,
        "peak_bytes": plan.peak_bytes,
        "kept_bytes": sum(share.kept_bytes for share in plan.shares),
        "scans_a_product": plan.scans,
        "pass_seconds": median(seconds) * plan.scans,
        "scan_seconds": list(seconds),
        "predicted_seconds": plan.later_seconds,
        "bytes_a_pass": plan.later_bytes,
        "bytes_planned": sum(report.bytes.planned.values()),
        "bytes_executed": sum(report.bytes.executed.values()),
        "bytes_per_second": plan.later_bytes / (median(seconds) * plan.scans),
        "plan": plan.to_dict(),
        "page": str(plan),
    }


def link_rate(names: Sequence[str]) -> dict[str, float]:
    """Bytes a second of page-locked copies to the first devices, one, two and so on at once."""
    from ooc_chol.bench.cuda.copy_rates import measure_links

    found = [each for each in measure_links(names) if each["what"] == "in"]
    return {str(len(each["devices"])): 1e9 * each["total_gigabytes_per_second"] for each in found if names[0] in each["devices"]}


def scipy_rates(matrix: oc.BlockCSR, columns: Sequence[int], repeats: int) -> Iterator[dict[str, Any]]:
    """SciPy's product on one thread, in float64: the best of some."""
    a = matrix.tocsr().astype(np.float64)
    for b in columns:
        multiply = partial(a.__matmul__, columns_of(vectors(a.shape[1], b, np.dtype(np.float64))))
        seconds = [seconds_of(multiply)[0] for _ in range(repeats + 1)][1:]
        yield {"peer": "SciPy on one thread", "columns": b, "seconds": seconds}


def read_file(path: Path) -> None:
    """Read a file from end to end into one buffer, unchecked."""
    buffer = memoryview(bytearray(READ_BYTES))
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def from_file(matrix: oc.BlockCSR, path: Path, case: PassCase, names: Sequence[str], repeats: int) -> Iterator[dict[str, Any]]:
    """Passes from a file with an eighth of its bytes beside the vectors, cold and warm, beside reading the file so."""
    x = vectors(matrix.shape[1], case.columns, case.precision.storage)
    block_bytes = max(4096, matrix.nbytes // FILE_BLOCKS)
    with oc.block_csr(matrix, store=path, block_bytes=block_bytes, replace=True) as packed:
        for is_cold in (True, False):
            reading = [cold_or_warm(lambda: read_file(path), path, is_cold) for _ in range(repeats + 1)][1:]
            operator, where = scaled(packed), {"precision": case.precision, "devices": list(names[:1])}
            try:
                oc.plan_multiply(operator, case.columns, **where, memory_budget=1)
                raise RuntimeError("one byte cannot be enough")
            except oc.BudgetError as error:
                ring = 3 * packed.blocks.largest_bytes
                budget = error.needed_bytes - ring + packed.nbytes // FILE_SHARE
            with oc.multiplier(operator, case.columns, **where, memory_budget=budget) as m:
                m(x)
                before = len(m.report.scan_seconds)
                for _ in range(repeats):
                    cold_or_warm(lambda: m(x), path, is_cold)
                figures = told(m, m.report.scan_seconds[before:])
            about = {"setting": f"file:{case.columns}:{case.precision.value}", "columns": case.columns, "tier": "file"}
            about |= {"precision": case.precision.value, "is_cold": is_cold, "file_bytes": packed.nbytes}
            yield about | figures | {"reading_seconds": reading, "reading_bytes_per_second": packed.nbytes / min(reading)}


def cold_or_warm(run: Callable[[], object], path: Path, is_cold: bool) -> float:
    """Seconds of a call, before which the pages of the file are dropped."""
    if is_cold:
        drop_pages(path)
    return seconds_of(run)[0]


def gpu_peers(matrix: oc.BlockCSR, repeats: int) -> Iterator[dict[str, Any]]:
    """Products of cuSPARSE through CuPy on the first GPU: SpMV and SpMM of 8 columns; what fails leaves its message."""
    import cupy as cp

    from benchmarks.sparse_in_core import AT_ONCE, Held, cusparse_matrix, with_values
    from ooc_chol.tasks.row_blocks import ValueKind

    def seconds(dtype: Any, columns: int) -> dict[str, Any]:
        blocks = [Held(block, cp.asarray(matrix.tier.stored((at, 0)))) for at, block in enumerate(matrix.blocks.blocks)]
        a = cusparse_matrix([with_values(held, ValueKind.FP64) for held in blocks], matrix.shape).astype(dtype, copy=False)
        x = cp.asarray(vectors(matrix.shape[1], columns, np.dtype(dtype)), order="F")
        return {"seconds": event_seconds(partial(a.__matmul__, columns_of(x)), repeats, AT_ONCE)}

    for dtype, columns in product((np.float64, np.float32), (1, 8)):
        about = {"peer": "cuSPARSE", "dtype": np.dtype(dtype).name, "columns": columns}
        yield about | attempt(partial(seconds, dtype, columns))
        cp.get_default_memory_pool().free_all_blocks()


def beyond_int32(matrix: oc.BlockCSR) -> Iterator[dict[str, Any]]:
    """A matrix of as many entries, ones in column 0 spread evenly over the rows, as CuPy and PyTorch take it: A x is known."""
    import cupy as cp
    from cupyx.scipy import sparse

    n, nnz = matrix.shape[0], matrix.nnz
    indptr = cp.asarray(np.linspace(0, nnz, n + 1).astype(np.int64))

    def by_cupy() -> Any:
        a = sparse.csr_matrix((cp.ones(nnz, cp.float32), cp.zeros(nnz, cp.int32), indptr), shape=(n, n))
        return a @ cp.ones(n, cp.float32)

    def by_torch() -> Any:
        import torch

        parts = torch.from_dlpack(indptr), torch.zeros(nnz, dtype=torch.int64, device="cuda"), torch.ones(nnz, device="cuda")
        return cp.from_dlpack(torch.sparse_csr_tensor(*parts, size=(n, n)) @ torch.ones(n, device="cuda"))

    def judged(multiply: Callable[[], Any]) -> dict[str, Any]:
        wrong = int((abs(multiply() - cp.diff(indptr)) > 0.5).sum())
        return {"error": f"{wrong} of {n} rows are wrong, without a message" if wrong else "none: right, not timed"}

    for name, multiply in {"CuPy": by_cupy, "PyTorch": by_torch}.items():
        yield {"peer": name, "dtype": "float32", "columns": 1, "entries": nnz} | attempt(partial(judged, multiply))
        cp.get_default_memory_pool().free_all_blocks()


def same_bits(passes: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """Whether all settings of a width and precision that were multiplied equally often have one hash."""
    found: dict[str, set[str]] = {}
    for each in passes:
        if "xxh3" in each:
            found.setdefault(f"{each['columns']}:{each['precision']}", set()).add(each["xxh3"])
    return {name: len(hashes) == 1 for name, hashes in found.items()}


def measured(given: Options, names: Sequence[str], matrix: oc.BlockCSR, content: dict[str, Any]) -> None:
    """Everything that was asked for, written as it comes."""
    on_gpus = not device_kind(names[0]).is_in_host_memory
    passes: list[dict[str, Any]] = content["passes"]

    def add(found: dict[str, Any]) -> None:
        passes.append(found)
        add_shares(found, content)
        write(content, given)

    for case in given.passes:
        trace = None if given.trace is None else Path(f"{given.trace}-{case.n_devices}.pftrace.gz")
        trace = None if any(len(each["devices"]) == case.n_devices for each in passes) else trace  # one of so many devices
        add(measure_pass(matrix, case, names, given.times, trace))
    if given.peers:
        widths, is_larger = sorted({case.columns for case in given.passes}), matrix.nnz > np.iinfo(np.int32).max
        on_these = beyond_int32(matrix) if is_larger else gpu_peers(matrix, given.repeats)
        for line in on_these if on_gpus else scipy_rates(matrix, widths, given.repeats):
            content["peers"].append(line)
            print(f"  {line}", flush=True)
            write(content, given)
    if given.file is not None:
        for case in (case for case in given.passes if case.n_devices == 1):
            for found in from_file(matrix, given.file, case, names, given.repeats):
                add(found)
        given.file.unlink(missing_ok=True)


def add_shares(found: dict[str, Any], content: dict[str, Any]) -> None:
    """What a pass had of the link, or of the disk and of the same product in core, whichever binds; one line of it."""
    told_of = ""
    if rate := content.get("link_bytes_per_second", {}).get(str(len(found["devices"]))):
        found["share_of_link"] = found["bytes_per_second"] / rate
        told_of = f", {found['share_of_link']:.3f} of the link"
    if "reading_seconds" in found:
        in_core = min(each["pass_seconds"] for each in content["passes"] if "tier" not in each and alike(each, found))
        bound = max(in_core, found["bytes_a_pass"] / found["reading_bytes_per_second"])
        found |= {"in_core_seconds": in_core, "share_of_bound": bound / found["pass_seconds"]}
        state = "cold" if found["is_cold"] else "warm"
        told_of = f", {found['share_of_bound']:.3f} of what disk ({state}) and product allow"
    moved = f"{format_bytes(found['bytes_a_pass'])} a pass, {format_bytes(found['bytes_per_second'])}/s{told_of}"
    is_planned = "as planned" if found["bytes_planned"] == found["bytes_executed"] else "NOT AS PLANNED"
    print(f"  {found['setting']}: {1e3 * found['pass_seconds']:.4g} ms; {moved}; {is_planned}", flush=True)


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether columns and precision are the same."""
    return bool(one["columns"] == other["columns"] and one["precision"] == other["precision"])


def write(content: dict[str, Any], options: Options) -> None:
    """The result file as far as it is known."""
    content["same_bits"] = same_bits(content["passes"])
    options.write(content)


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.takes(scale=22, seed=1, devices=None)
    parser.add_argument("--graph", choices=("rmat", "urand"), default="rmat")
    parser.add_argument("--order", choices=("degree",), help="numbers of the graph's vertices")
    parser.add_argument("--values", choices=("pattern", "float32", "float64"), default="pattern", help="of the graph's entries")
    parser.add_argument("--matrix", type=Path, help="a packed file, read into memory, in place of a graph")
    parser.add_argument("--block-bytes", help="bytes of a block (default: block_csr's)")
    parser.add_argument("--passes", nargs="*", type=pass_case, default=[], metavar="BUDGET:COLUMNS:PRECISION[@DEVICES]")
    parser.add_argument("--times", type=int, default=12, help="products that are timed")
    parser.add_argument("--repeats", type=int, default=5, help="of yardsticks and of passes from a file")
    parser.add_argument("--peers", action="store_true", help="cuSPARSE through CuPy, or SciPy on one thread")
    parser.add_argument("--trace", type=Path, help="beginning of names for a trace of three products of each setting")
    parser.add_argument("--file", type=Path, help="file to write and to multiply from; it is removed")


def run(options: Options) -> None:
    """Pack the matrix, and multiply."""
    names = options.devices = resolve_devices(options.devices)
    on_gpus = not device_kind(names[0]).is_in_host_memory
    graph = {"rmat": oc.testing.rmat, "urand": oc.testing.urand}[options.graph]
    source: Any = oc.block_csr(options.matrix) if options.matrix else graph(options.scale, seed=options.seed, order=options.order)
    if options.values != "pattern":
        source = Valued(source, np.dtype(options.values))
    began = time.perf_counter()
    with closing(oc.HostMemory()) as memory, oc.block_csr(source, store=memory, block_bytes=options.block_bytes) as matrix:
        seconds = time.perf_counter() - began
        print(f"packed in {seconds:.1f} s", matrix.info(), sep="\n", flush=True)
        content: dict[str, Any] = {
            "devices": list(names),
            "matrix": str(options.matrix or source.name),
            "n": matrix.shape[0],
            "entries": matrix.nnz,
            "blocks": len(matrix.blocks.blocks),
            "kinds": sorted({block.kind.value for block in matrix.blocks.blocks}),
            "bytes": matrix.nbytes,
            "packing_seconds": seconds,
            "link_bytes_per_second": link_rate(names) if on_gpus else {},
            "passes": [],
            "peers": [],
        }
        print(f"  link: {content['link_bytes_per_second']}", flush=True)
        write(content, options)
        measured(options, names, matrix, content)
    print(f"same bits: {content['same_bits']}")
