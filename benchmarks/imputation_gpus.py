"""Imputation on two GPUs beside one, and of a tensor that passes through a GPU in every step.

``two``: the same tensor on the first device and on all; whether the results have the same bits, the ratio of the seconds, and
the share of exchange. A run of one lambda comes before each, which is not counted. ``out-of-core``: communities of 1,000
vertices, whose smoothest eigenvectors are the transform, and a budget that holds little of the tensor: bytes planned and
executed, and seconds of a step beside those that its bytes take at the rate of the link and its flops at that of a GEMM, both
measured here. Where there is a GPU, CuPy makes the tensor there, a panel of columns at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array

import ooc_chol as oc
from benchmarks.running import Options, Parser, event_seconds, seconds_of
from ooc_chol.bench.imputation import random_graph
from ooc_chol.tensors.fourier import multiple_spaces, orthogonal

FOLDER = "imputation"
COMMUNITY, RANK, PANEL, SHARE = 1000, 5, 4096, 0.9


def tensor_of(fourier: oc.GraphFourier, rows: int, columns: int, on_gpu: bool) -> NDArray[np.float32]:
    """``U Q Z`` in float32, Z slices of rank 5, Q turning eigenvectors of multiple eigenvalues as ``low_rank_tensor`` does."""
    if on_gpu:
        import cupy as xp
    else:
        xp = np
    rng, basis = np.random.default_rng(0), fourier.basis.copy()
    n, count = basis.shape
    left, right = (xp.asarray(rng.standard_normal((count, size, RANK)).astype(np.float32)) for size in (rows, columns))
    z = (left @ right.transpose(0, 2, 1)).reshape(count, -1)
    del left, right
    for space in multiple_spaces(fourier):
        basis[:, space] @= orthogonal(rng.standard_normal((len(space), len(space))))
    u, x = xp.asarray(basis.astype(np.float32)), np.empty((n, rows * columns), np.float32)
    for at in range(0, rows * columns, PANEL):
        part = u @ z[:, at : at + PANEL]
        x[:, at : at + PANEL] = part.get() if on_gpu else part
    if on_gpu:
        del u, z, part
        xp.get_default_memory_pool().free_all_blocks()
    return x.reshape(n, rows, columns)


def link_and_gemm(n: int, count: int) -> dict[str, float]:
    """Bytes a second each way over the link, both at once, page-locked, and flops a second of a GEMM of the transform's shape."""
    import cupy as cp

    size = 1 << 30
    pinned = [np.frombuffer(cp.cuda.alloc_pinned_memory(size), np.uint8, size) for _ in range(2)]
    there = [cp.empty(size, np.uint8) for _ in range(2)]
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]

    def copies() -> None:
        there[0].set(pinned[0], stream=streams[0])
        there[1].get(stream=streams[1], out=pinned[1])
        cp.cuda.Device().synchronize()

    times = [seconds_of(copies)[0] for _ in range(3)]
    there.clear()
    u, z = cp.random.random((count, n), cp.float32), cp.random.random((n, PANEL), cp.float32)
    rate = 2.0 * n * count * PANEL / min(event_seconds(lambda: u @ z, 3))
    u = z = None
    cp.get_default_memory_pool().free_all_blocks()
    return {"link_bytes_per_second_each_way": size / min(times), "gemm_flops_per_second": rate}


def imputed(
    x: NDArray[Any], mask: NDArray[np.bool_], fourier: oc.GraphFourier, **options: Any
) -> tuple[oc.Imputed, dict[str, Any]]:
    """One whole call."""
    seconds, found = seconds_of(lambda: oc.impute(x, mask, fourier, **options))
    missing = ~mask
    error = float(np.linalg.norm(found.tensor[missing] - x[missing]) / np.linalg.norm(x))
    report = found.report.to_dict()
    line = {"seconds": seconds, "seconds_a_step": report["seconds"]["total"] / found.report.steps, "error": error}
    print(f"{options}\n{found.report}\n{line}", flush=True)
    return found, line | {"report": report}


def two(options: Options) -> dict[str, Any]:
    """One device and all."""
    n, rows, columns = options.size
    on_gpu = options.on_gpu
    fourier = oc.GraphFourier(random_graph(n, 10.0, 0), devices=options.devices[0])
    x = tensor_of(fourier, rows, columns, on_gpu)
    mask = oc.testing.random_mask(x.shape, SHARE)
    lines, tensors = [], []
    for devices in (options.devices[:1], options.devices):
        oc.impute(x, mask, fourier, devices=devices, precision="FFF", n_lambdas=1)
        found, line = imputed(x, mask, fourier, devices=devices, precision="FFF", n_lambdas=options.n_lambdas)
        lines.append({"devices": list(devices)} | line)
        tensors.append(found.tensor)
        del found
    ratio, same = lines[0]["seconds"] / lines[1]["seconds"], bool(np.array_equal(*tensors))
    print({"ratio": ratio, "same bits": same}, flush=True)
    return {"runs": lines, "ratio": ratio, "same_bits": same}


def out_of_core(options: Options) -> dict[str, Any]:
    """A budget that holds little of the tensor."""
    n, rows, columns = options.size
    on_gpu = options.on_gpu
    graph = csr_array(block_diag([random_graph(min(n, COMMUNITY), 10.0, seed) for seed in range(-(-n // COMMUNITY))]))[:n, :n]
    how = {"n_components": options.components, "devices": options.devices}
    seconds, fourier = seconds_of(lambda: oc.GraphFourier(graph, **how))
    made, x = seconds_of(lambda: tensor_of(fourier, rows, columns, on_gpu))
    told: dict[str, Any] = {"fourier_seconds": seconds, "made_seconds": made}
    told |= {"components": fourier.n_components, "budget": options.memory_budget}
    rates = link_and_gemm(n, fourier.n_components) if on_gpu else {}
    mask = oc.testing.random_mask(x.shape, SHARE)
    where = {"devices": options.devices, "memory_budget": options.memory_budget, "precision": "FFF"}
    _, line = imputed(x, mask, fourier, n_lambdas=options.n_lambdas, **where)
    plan = oc.plan_impute(x.shape, n_components=fourier.n_components, **where)
    if rates:
        ways = list(plan.step_bytes().values())
        flops = 4.0 * n * fourier.n_components * rows * columns
        told |= rates | {
            "step_bytes": plan.step_bytes(),
            "link_seconds_a_step": max(ways) / rates["link_bytes_per_second_each_way"],
            "gemm_seconds_a_step": flops / rates["gemm_flops_per_second"],
        }
    print(told, flush=True)
    return told | line


def size_of(text: str) -> tuple[int, int, int]:
    """Slices, rows and columns."""
    n, rows, columns = map(int, text.split("x"))
    return n, rows, columns


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("what", choices=("two", "out-of-core"))
    parser.add_argument("--size", type=size_of)
    parser.takes(components=1024, memory_budget="4 GiB", devices=None, n_lambdas=int)


def run(options: Options) -> dict[str, Any]:
    """Measure."""
    is_two = options.what == "two"
    options.size = options.size or ((2600, 512, 512) if is_two else (16000, 512, 512))
    options.devices = options.devices or (("cuda:0", "cuda:1") if is_two else ("cuda:0",))
    options.n_lambdas = options.n_lambdas or (20 if is_two else 2)
    return {"shape": list(options.size), **(two if is_two else out_of_core)(options)}
