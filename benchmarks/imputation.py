"""Cases of imputation: when it works, and on several GPUs or out of core."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array, diags_array, kronsum

import ooc_chol as oc
from benchmarks.running import Options, Parser, event_seconds, markdown, seconds_of
from ooc_chol.apps.imputation import cross_validate, neighbour_graph, relative_error
from ooc_chol.bench.imputation import random_graph
from ooc_chol.tensors.fourier import multiple_spaces, orthogonal

FOLDER = "imputation"

SIZE = 24
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
#: What the document shows of shares and ranks; the file has all.
SHOWN, SHOWN_RANKS = (("slice", 0.5), ("slice", 0.7), ("slice", 0.9), ("entry", 0.5), ("entry", 0.8)), (3, 6)
#: Columns of the slices of the paper's main case.
PAPER_COLUMNS = 50
#: The default, and the convex model as the paper has it.
RULES: dict[str, dict[str, Any]] = {
    "garrote": {"shrinkage": "garrote", "momentum": 0.7},
    "soft": {"shrinkage": "soft", "momentum": 0.0},
}


def graphs(seed: int) -> dict[str, csr_array]:
    """The four graphs by name."""
    rng = np.random.default_rng(seed)
    places = neighbour_graph(rng.random((200, 2)), 8)
    upper = np.triu(rng.random((200, 200)) < 0.05, 1)
    path = diags_array([1.0, 1.0], offsets=[-1, 1], shape=(14, 14))
    ring = diags_array([1.0, 1.0, 1.0, 1.0], offsets=[-199, -1, 1, 199], shape=(200, 200))
    random = csr_array((upper + upper.T).astype(float))
    return {"places": places, "random": random, "grid": kronsum(path, path).tocsr(), "ring": ring.tocsr()}


def imputed(x: Any, fourier: oc.GraphFourier, mask: Any, true: Any, device: str, **options: Any) -> dict[str, Any]:
    """Error and seconds of one imputation."""
    since = time.perf_counter()
    found = oc.impute(x, mask, fourier, devices=device, **options)
    seconds = time.perf_counter() - since
    return {"error": relative_error(found.tensor, true, ~mask), "steps": found.report.steps, "seconds": seconds}


def runs(seed: int, device: str) -> Iterator[dict[str, Any]]:
    """All cases, each as it is there."""
    transforms = {name: oc.GraphFourier(graph) for name, graph in graphs(seed).items()}
    for name, fourier in transforms.items():
        for rank in (1, 3, 6):
            x = oc.testing.low_rank_tensor(fourier, SIZE, SIZE, rank, seed=seed)
            for by, share in (*(("slice", each) for each in SHARES), ("entry", 0.5), ("entry", 0.8)):
                mask = oc.testing.random_mask(x.shape, share, by=by, seed=seed)
                yield {"case": by, "graph": name, "rank": rank, "share": share, **imputed(x, fourier, mask, x, device)}
    fourier = transforms["places"]
    true = oc.testing.low_rank_tensor(fourier, SIZE, SIZE, 3, seed=seed)
    mask = oc.testing.random_mask(true.shape, 0.8, seed=seed)
    yield from of_the_other_laplacian(graphs(seed)["places"], seed, device)
    yield from beside_a_constant(fourier, true, mask, device)
    for decay in (0.3, 0.5, 0.7):
        for shrinkage, momentum in product(RULES, (0.0, 0.5, 0.7)):
            options = {"decay": decay, "shrinkage": shrinkage, "momentum": momentum}
            yield {"case": "schedule", **options, **imputed(true, fourier, mask, true, device, n_lambdas=40, **options)}
    for noise in (0.01, 0.1, 0.3):
        x = true + noise * np.random.default_rng(seed).standard_normal(true.shape).astype(true.dtype)
        for name, rule in RULES.items():
            best = cross_validate(x, fourier, mask, folds=5, seed=seed, devices=device, **rule).best
            ended, whole = (imputed(x, fourier, mask, true, device, n_lambdas=each, **rule) for each in (best, 20))
            yield {"case": "noise", "noise": noise, "rule": name, "best": best, **ended, "to_the_end": whole}


def of_the_other_laplacian(graph: csr_array, seed: int, device: str) -> Iterator[dict[str, Any]]:
    """Truths of rank 1 for D - A and for the normalized Laplacian, each imputed by both; held-out errors, too."""
    fouriers = {normalized: oc.GraphFourier(graph, normalized=normalized) for normalized in (True, False)}
    for of, by in product(fouriers, fouriers):
        x = oc.testing.low_rank_tensor(fouriers[of], SIZE, SIZE, 1, seed=seed)
        mask = oc.testing.random_mask(x.shape, 0.8, seed=seed)
        held_out = cross_validate(x, fouriers[by], mask, seed=seed, devices=device).error
        found = imputed(x, fouriers[by], mask, x, device)
        yield {"case": "laplacian", "normalized": of, "by_normalized": by, "held_out": held_out, **found}


def beside_a_constant(fourier: oc.GraphFourier, true: Any, mask: Any, device: str) -> Iterator[dict[str, Any]]:
    """The same truth with a constant added, by each way of taking it off; errors in sizes of the truth without it."""
    centers: tuple[Any, ...] = ("auto", False, True)
    for constant, center in product((0.0, 1.0, 300.0), centers):
        x = true + np.float32(constant)
        found = imputed(x, fourier, mask, x, device, center=center)
        norm = float(np.linalg.norm(x[~mask]) / np.linalg.norm(true[~mask]))
        yield {"case": "constant", "constant": constant, "center": center, **found, "error": found["error"] * norm}


def tables(found: list[dict[str, Any]]) -> dict[str, str]:
    """Markdown of each table, by name."""
    columns = [f"{100 * share:.0f} %{' of entries' if by == 'entry' else ''}" for by, share in SHOWN]
    lines: list[list[object]] = [["graph", "rank", *columns]]
    cases = [each for each in found if (each["case"], each.get("share")) in SHOWN and each["rank"] in SHOWN_RANKS]
    for graph, rank in dict.fromkeys((each["graph"], each["rank"]) for each in cases):
        errors = [f"{each['error']:.1e}" for each in cases if (each["graph"], each["rank"]) == (graph, rank)]
        lines.append([graph, rank, *errors])
    noise: list[list[object]] = [["noise", "shrinkage", "values of lambda by cross-validation", "error", "error with all values"]]
    for each in found:
        if each["case"] == "noise":
            facts = [f"{each['noise']:g}", each.get("rule", "soft"), each["best"]]
            noise.append([*facts, f"{each['error']:.2g}", f"{each['to_the_end']['error']:.2g}"])
    return {"observed": markdown(*lines), "noise": markdown(*noise)}


def beside(folder: Path) -> str:
    """Markdown of what ``ooc-chol bench imputation`` measured on the host where the paper has an error, beside that."""
    lines = [["truth made in", "observed", "shrinkage", "error", "squared", "paper", "slices off"]]
    for path in sorted(folder.glob("host-*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["case"] != "imputation":
            continue
        if content["shape"][-1] == PAPER_COLUMNS:
            lines += [cells(path.name, run) for run in content["runs"] if run.get("paper_error") is not None]
    return markdown(*lines)


def cells(file: str, run: dict[str, Any]) -> list[str]:
    """One run; those before the garrote was there were of soft thresholds, and do not say which slices are off.

    Files of truths in turned eigenvectors say so in their names.
    """
    truth = "turned eigenvectors" if "turned" in file else "the solver's own"
    found = [f"[{truth}](../benchmarks/results/imputation/{file})", f"{100 * run['share']:.0f} %", run.get("shrinkage", "soft")]
    found += [f"{run['error']:.1e}", f"{run['error'] ** 2:.1e}", f"{run['paper_error']:g}"]
    return [*found, f"{run['off']} of {run['missing']}" if "off" in run else ""]


def documented_when(options: Options) -> dict[str, str]:
    """The tables of a page by their marks, from ``host-when.json`` and files of ``ooc-chol bench imputation``."""
    found = options.read("host-when")["runs"]
    return {f"when {name}": table for name, table in (tables(found) | {"beside": beside(options.output)}).items()}


LINES_when = "runs"
TAKES_when = {"seed": 0, "devices": "host:0"}


def run_when(options: Options) -> Iterator[dict[str, Any]]:
    """When imputation of whole slices works: errors by share observed, rank, graph, noise, schedule, rule; one result file.

    Graphs: 200 places joined with their 8 nearest, 200 vertices any two joined with probability 0.05, a grid of 14 x 14, and a
    ring of 200. Nearly all eigenvalues of the last two are double. Slices of 24 x 24, of rank 1, 3 or 6 in the Fourier domain of
    the graph: in eigenvectors that are turned at random where an eigenvalue is multiple, which the solver does not know. Errors
    are at what was not observed, ``||found - true|| / ||true||``. ``--update`` rewrites the tables of a page from
    ``host-when.json``, and one of what ``ooc-chol bench imputation`` left in other files ``host-*.json``.
    """
    options.about = {"case": "imputation-when", "size": SIZE, "seed": options.seed}
    yield from runs(options.seed, options.device)


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


def called(
    x: NDArray[Any], mask: NDArray[np.bool_], fourier: oc.GraphFourier, **options: Any
) -> tuple[oc.Imputed, dict[str, Any]]:
    """One whole call."""
    seconds, found = seconds_of(lambda: oc.impute(x, mask, fourier, **options))
    missing = ~mask
    error = float(np.linalg.norm(found.tensor[missing] - x[missing]) / np.linalg.norm(x))
    report = found.report.to_dict()
    line = {"seconds": seconds, "seconds_a_step": report["seconds"]["parts"]["run"] / found.report.steps, "error": error}
    print(f"{options}\n{found.report}\n{line}", flush=True)
    return found, line | {"report": report}


def one_and_two(options: Options) -> dict[str, Any]:
    """One device and all."""
    n, rows, columns = options.size
    on_gpu = options.on_gpu
    fourier = oc.GraphFourier(random_graph(n, 10.0, 0), devices=options.devices[0])
    x = tensor_of(fourier, rows, columns, on_gpu)
    mask = oc.testing.random_mask(x.shape, SHARE)
    lines, tensors = [], []
    for devices in (options.devices[:1], options.devices):
        oc.impute(x, mask, fourier, devices=devices, precision="FFF", n_lambdas=1)
        found, line = called(x, mask, fourier, devices=devices, precision="FFF", n_lambdas=options.n_lambdas)
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
    found, line = called(x, mask, fourier, n_lambdas=options.n_lambdas, **where)
    plan = found.report.plan
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


def options_gpus(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("what", choices=("two", "out-of-core"))
    parser.add_argument("--size", type=size_of)
    parser.takes(components=1024, memory_budget="4 GiB", devices=None, n_lambdas=int)


def run_gpus(options: Options) -> dict[str, Any]:
    """Imputation on two GPUs beside one, and of a tensor that passes through a GPU in every step.

    ``two``: the same tensor on the first device and on all; whether the results have the same bits, the ratio of the seconds, and
    the share of exchange. A run of one lambda comes before each, which is not counted. ``out-of-core``: communities of 1,000
    vertices, whose smoothest eigenvectors are the transform, and a budget that holds little of the tensor: bytes planned and
    executed, and seconds of a step beside those that its bytes take at the rate of the link and its flops at that of a GEMM, both
    measured here. Where there is a GPU, CuPy makes the tensor there, a panel of columns at a time.
    """
    is_two = options.what == "two"
    options.size = options.size or ((2600, 512, 512) if is_two else (16000, 512, 512))
    options.devices = options.devices or (("cuda:0", "cuda:1") if is_two else ("cuda:0",))
    options.n_lambdas = options.n_lambdas or (20 if is_two else 2)
    return {"shape": list(options.size), **(one_and_two if is_two else out_of_core)(options)}
