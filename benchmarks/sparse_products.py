"""Products of a packed R-MAT graph in core on the host, beside SciPy's product on one thread, numba's loops and torch's CSR.

A round measures every case once, so that a machine whose speed drifts treats them alike; what is compared
is the best of all rounds. SciPy's own compiled product on ``threads`` equal shares of the rows, in as many threads, tells what
the machine has to give at the time: on a machine that others use too it may be no more than one thread's. numba and torch are
measured where they are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import ooc_chol as oc
from benchmarks.running import Options, both_seconds, in_turn, versions
from ooc_chol.kernels.registry import open_product_device
from ooc_chol.precision.triples import Precision
from ooc_chol.process.scipy_modules import sparse_tools
from ooc_chol.process.team import ThreadTeam, cores
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.pack import block_csr
from ooc_chol.tasks.row_blocks import ValueKind

FOLDER = "sparse"
#: What our rates are promised to be, as a share of threads times SciPy's rate on one of them.
BAR = 0.8
COLUMNS = (1, 8)
Case = Callable[[], object]


def values_of(kind: ValueKind, count: int) -> NDArray[Any]:
    """Values that a kind holds and no narrower one."""
    rng = np.random.default_rng(1)
    if kind is ValueKind.PATTERN:
        return np.ones(count)
    if kind is ValueKind.INT8:
        return rng.integers(-127, 128, count, np.int8).astype(float)
    values = rng.standard_normal(count, np.float32).astype(float)
    return values if kind is ValueKind.FP32 else values + 2.0**-40


def packed(graph: scipy.sparse.csr_array, kind: ValueKind) -> BlockCSR:
    """The graph with values of that kind, packed."""
    matrix = block_csr(scipy.sparse.csr_array((values_of(kind, graph.nnz), graph.indices, graph.indptr), shape=graph.shape))
    if {block.kind for block in matrix.blocks.blocks} != {kind}:
        raise RuntimeError(f"{matrix!r} is not all of {kind.value}: the case would not measure what it says")
    return matrix


@contextmanager
def our_product(matrix: BlockCSR, precision: Precision, x: NDArray[Any], threads: int) -> Iterator[Case]:
    """A product of all blocks as a function, by our kernels, through a stream of the host device."""
    y = np.empty((matrix.shape[0], x.shape[1]), precision.storage)
    data = [matrix.tier.stored((number, 0)) for number in range(len(matrix.blocks.blocks))]
    with closing(open_product_device("host:0", precision, x.shape[1], matrix.blocks.most_segments, threads)) as device:
        device.allocate(0, 0, matrix.shape[1])
        stream = device.create_stream("compute")

        def multiply() -> None:
            device.kernels.prepare(stream, x)
            for block, stored in zip(matrix.blocks.blocks, data, strict=True):
                device.kernels.multiply(stream, block, stored, x, y[block.rows.start : block.rows.stop])
            stream.synchronize()

        yield multiply


def scipy_in_threads(a: scipy.sparse.csr_array, x: NDArray[Any], team: ThreadTeam) -> Case:
    """SciPy's compiled product on as many shares of the rows, equal in entries, as there are threads."""
    y = np.empty((a.shape[0], x.shape[1]), a.dtype)
    shares = np.searchsorted(a.indptr, np.linspace(0, a.nnz, team.size + 1).astype(a.indptr.dtype))
    shares[-1] = a.shape[0]
    tools, n, b = sparse_tools(), *x.shape

    def share(first: int, stop: int) -> None:
        arguments = a.indptr[first : stop + 1], a.indices, a.data, x.reshape(-1), y[first:stop].reshape(-1)
        y[first:stop] = 0
        if b == 1:
            tools.csr_matvec(stop - first, n, *arguments)
        else:
            tools.csr_matvecs(stop - first, n, b, *arguments)

    jobs = [partial(share, int(first), int(stop)) for first, stop in pairwise(shares)]
    return partial(team.run, jobs)


def numba_product(a: scipy.sparse.csr_array, x: NDArray[Any], threads: int) -> Case:
    """Plain loops over rows by numba, compiled and called once."""
    import numba

    numba.set_num_threads(threads)

    @numba.njit(parallel=True)
    def multiply(starts: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
        for i in numba.prange(len(starts) - 1):
            for c in range(x.shape[1]):
                total = 0.0
                for at in range(starts[i], starts[i + 1]):
                    total += values[at] * x[columns[at], c]
                y[i, c] = total

    y = np.empty((a.shape[0], x.shape[1]), x.dtype)
    run = partial(multiply, a.indptr, a.indices, a.data, x, y)
    run()
    return run


def torch_product(a: scipy.sparse.csr_array, x: NDArray[Any], threads: int) -> Case:
    """Torch's sparse CSR tensor."""
    import torch

    torch.set_num_threads(threads)
    parts = [torch.from_numpy(part) for part in (a.indptr, a.indices, a.data)]
    matrix, panel = torch.sparse_csr_tensor(*parts, size=a.shape), torch.from_numpy(x)
    return lambda: matrix @ panel


PEERS = {"numba": numba_product, "torch": torch_product}


def best_of(cases: dict[str, Case], repeats: int) -> dict[str, dict[str, Any]]:
    """Wall and processor seconds of every repeat of every case, in turn."""
    found = in_turn({name: lambda run=run: both_seconds(run)[0] for name, run in cases.items()}, repeats)
    names = ("seconds", "processor_seconds")
    return {case: {name: [each[name] for each in runs] for name in names} for case, runs in found.items()}


def measure(graph: scipy.sparse.csr_array, b: int, threads: int, repeats: int) -> list[dict[str, Any]]:
    """All cases of one width, as lines of the result."""
    x = np.random.default_rng(0).standard_normal((graph.shape[1], b))
    with ExitStack() as stack:
        of_kind = {kind: stack.enter_context(packed(graph, kind)) for kind in ValueKind}
        team = stack.enter_context(closing(ThreadTeam(threads)))
        cases: dict[str, Case] = {}
        facts: dict[str, dict[str, Any]] = {}

        def add(name: str, case: Case, **about: Any) -> None:
            cases[name] = case
            facts[name] = {"name": name, "columns": b} | about

        for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
            a, panel = graph.astype(dtype), np.ascontiguousarray(x, dtype)
            vector = panel[:, 0].copy() if b == 1 else panel
            add(f"scipy {dtype.name}", partial(a.__matmul__, vector), threads=1)
            add(f"scipy shares {dtype.name}", scipy_in_threads(a, panel, team), threads=threads)
        for name, make in PEERS.items():
            try:
                add(name, make(graph, x, threads), threads=threads)
            except ImportError as error:
                facts[name] = {"name": name, "columns": b, "error": str(error)}
        for precision in Precision:
            panel = np.ascontiguousarray(x, precision.storage)
            for kind, matrix in of_kind.items():
                for count in sorted({1, threads}):
                    case = stack.enter_context(our_product(matrix, precision, panel, count))
                    name = f"ours {precision.value} {kind.value} {count}"
                    add(name, case, threads=count, precision=precision.value, kind=kind.value, nbytes=matrix.nbytes)
        found = best_of(cases, repeats)
    return [about | with_rates(found, name, about, graph.nnz) for name, about in facts.items()]


def with_rates(found: dict[str, dict[str, Any]], name: str, about: dict[str, Any], entries: int) -> dict[str, Any]:
    """Seconds and best rate of a case, and what they are beside SciPy's in the type in which it computes."""
    if name not in found:
        return {}
    own = found[name]
    line = own | {"million_entries_per_second": entries * about["columns"] / min(own["seconds"]) / 1e6}
    if "precision" not in about:
        return line
    compute = Precision(about["precision"]).compute.name
    scipys, shares = found[f"scipy {compute}"], found[f"scipy shares {compute}"]
    one_thread = min(scipys["seconds"]) / min(own["seconds"])
    line["share_of_scipy"] = one_thread / about["threads"]
    line["share_of_scipy_by_processor"] = min(scipys["processor_seconds"]) / min(own["processor_seconds"])
    if about["threads"] > 1:
        line["share_of_scipy_in_threads"] = min(shares["seconds"]) / min(own["seconds"])
    return line


TAKES = {"scale": 20, "threads": cores(), "repeats": 9}


def usual_name(options: Options) -> str:
    """By the graph."""
    return f"host-products-{options.scale}"


def run(options: Options) -> dict[str, Any]:
    """Measure every width."""
    print(f"R-MAT of scale {options.scale}, {options.threads} threads, best of {options.repeats}", flush=True)
    with block_csr(oc.testing.rmat(options.scale, devices="host:0")) as pattern:
        graph = pattern.tocsr()
    lines = [line for b in COLUMNS for line in measure(graph, b, options.threads, options.repeats)]
    for line in lines:
        shares = [f"{line[key]:.2f} {key.replace('_', ' ')}" for key in line if key.startswith("share")]
        rate = line.get("million_entries_per_second")
        print(f"b = {line['columns']}  {line['name']:24} {line.get('error') or f'{rate:6.0f} M/s'}  {', '.join(shares)}")
    return {
        "peers": versions(*PEERS),
        "graph": f"rmat({options.scale})",
        "n": graph.shape[0],
        "entries": int(graph.nnz),
        "longest_row": int(np.diff(graph.indptr).max()),
        "threads": options.threads,
        "bar": BAR,
        "lines": lines,
    }
