"""Kernels of graph-tensor imputation: a threshold step by each route and the transforms, beside peers.

Slices are of rank 6 with noise; lambda is 0.01 of the largest singular value, 20 times the noise's. "subspace" is timed on
slices that differ from those of its warm start by 1e-4 of their norm, as from one inner step to the next, and the share of
slices that took the full route is told. Peers are, on a GPU, CuPy's and torch's (where that is installed) batched ``eigh`` in
float64 and ``svd`` of the slices as they are, and each of cuSOLVER's batched routines, of which the rule in ``tensor_sizes.py``
takes one by order (Jacobi's up to order 128, above which it takes too long); on the host NumPy's. The transform is forward and
inverse of all panels with a random orthonormal basis of all vertices, in each precision. Peers that take one slice after the
other get at most as many numbers as 2,100 slices of 64 x 64 have, and their size says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.places import Place, place_of
from benchmarks.running import Options
from ooc_chol.kernels.interfaces.tensors import PANEL_COLUMNS, TensorShape
from ooc_chol.kernels.registry import tensor_kernels
from ooc_chol.precision.triples import Precision

FOLDER = "tensors"
SIZES = ("4039x50x50", "2100x64x64", "500x512x512")
RANK, NOISE, CHANGE, LAMBDA = 6, 5e-4, 1e-4, 0.01
#: Numbers of the slices that a peer which does one after the other gets at most.
MOST_SVD = 2100 * 64 * 64
MOST_JACOBI = 128


def told(what: dict[str, Any], seconds: list[float]) -> dict[str, Any]:
    """Print a line and make a record."""
    print(f"    {' '.join(map(str, what.values())):44} {1e3 * min(seconds):10.3f} ms", flush=True)
    return {**what, "seconds": seconds}


def slices_of(count: int, m: int, n: int) -> tuple[Any, Any, float]:
    """Slices, the same a step later, and lambda."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((count, m, RANK), np.float32) @ rng.standard_normal((count, RANK, n), np.float32)
    largest = float(np.linalg.norm(first[0].astype(float), 2))
    noise = largest / (np.sqrt(m) + np.sqrt(n))
    first += np.float32(NOISE * noise) * rng.standard_normal(first.shape, np.float32)
    second = first + np.float32(CHANGE * noise) * rng.standard_normal(first.shape, np.float32)
    return first, second, LAMBDA * largest


def bound(of: Place, kernels: Any) -> Any:
    """A workspace, which the kernels take."""
    workspace = of.xp.zeros(max(256, kernels.workspace_bytes(0)), np.uint8)
    kernels.bind(0, of.address(workspace))
    return workspace


def thresholds(of: Place, given: Options, count: int, m: int, n: int) -> Iterator[dict[str, Any]]:
    """A step by each route."""
    xp, (first, second, lam) = of.xp, slices_of(count, m, n)
    before, after = xp.asarray(first), xp.asarray(second)
    for svt in ("gram64", "subspace", *(("svd",) if given.device == "host:0" and m * n * count <= MOST_SVD else ())):
        kernels = tensor_kernels(given.device, TensorShape(count, count, m, n), Precision.FDF, svt, given.threads)
        workspace = bound(of, kernels)
        ranks, flags, x = xp.zeros(count, np.int32), xp.zeros(count, np.int32), before.copy()
        start = xp.zeros((count, min(m, n), kernels.basis_columns)) if svt == "subspace" else None
        kernels.threshold(of.stream, x, lam, ranks, flags, basis=start)
        kept = None if start is None else start.copy()

        def again(x: Any = x, start: Any = start, kept: Any = kept) -> None:
            xp.copyto(x, after)
            if start is not None:
                xp.copyto(start, kept)

        def step(kernels: Any = kernels, x: Any = x, ranks: Any = ranks, flags: Any = flags, start: Any = start) -> None:
            kernels.threshold(of.stream, x, lam, ranks, flags, basis=start)

        found = of.seconds(step, given.repeats, again)
        more = {"mean_rank": float(ranks.mean()), "full_route": float((flags != 0).mean())}
        yield told({"kernel": "threshold", "svt": svt, "size": f"{count}x{m}x{n}"}, found) | more
        kernels.close()
        del workspace


def peers(of: Place, given: Options, count: int, m: int, n: int) -> Iterator[dict[str, Any]]:
    """Eigenpairs of Gram matrices, and SVD, by libraries."""
    xp, first = of.xp, slices_of(count, m, n)[0]
    x = xp.asarray(first)
    gram = x.astype(np.float64).swapaxes(1, 2) @ x.astype(np.float64)
    library, size = xp.__name__, f"{count}x{m}x{n}"
    yield told({"peer": f"{library} eigh", "size": size}, of.seconds(lambda: xp.linalg.eigh(gram), given.repeats))
    few = x[: max(1, min(count, MOST_SVD // (m * n)))]
    found = of.seconds(lambda: xp.linalg.svd(few, full_matrices=False), given.repeats)
    yield told({"peer": f"{library} svd", "size": f"{len(few)}x{m}x{n}"}, found)
    if of.on_gpu:
        yield from routines(of, given, gram)
        if find_spec("torch") is not None:
            yield from torch_peers(of, given, gram, few)


def routines(of: Place, given: Options, gram: Any) -> Iterator[dict[str, Any]]:
    """Batched routines of cuSOLVER, groups as the kernels have them."""
    from ooc_chol.kernels.cuda.eigenpairs import BatchedEigenpairs
    from ooc_chol.kernels.cuda.tensor_sizes import eigen_bytes
    from ooc_chol.kernels.interfaces.tensors import slice_group

    count, order, _ = gram.shape
    group = min(count, slice_group(order, order))
    workspace = of.xp.empty(eigen_bytes(order, group), np.uint8)
    for routine in ("syevj", "xsyev") if order <= MOST_JACOBI else ("xsyev",):
        pairs = BatchedEigenpairs(order, group, routine, of.address(workspace), workspace.nbytes)
        matrices, values, info = gram.copy(), of.xp.empty((count, order)), of.xp.empty(count, np.int32)

        def run(pairs: Any = pairs, matrices: Any = matrices, values: Any = values, info: Any = info) -> None:
            for at in range(0, count, group):
                part = slice(at, at + group)
                pairs.run(of.stream, matrices[part], values[part], info[part])

        found = of.seconds(run, given.repeats, lambda matrices=matrices: of.xp.copyto(matrices, gram))
        yield told({"peer": f"cuSOLVER {routine}", "size": f"{count}x{order}", "batch": pairs.batch}, found)
        pairs.close()


def torch_peers(of: Place, given: Options, gram: Any, few: Any) -> Iterator[dict[str, Any]]:
    """The same by torch."""
    import torch

    a, x = torch.from_dlpack(gram), torch.from_dlpack(few)
    calls = {"eigh": lambda: torch.linalg.eigh(a), "svd": lambda: torch.linalg.svd(x, full_matrices=False)}
    sizes = {"eigh": gram.shape[:2], "svd": few.shape}
    for name, call in calls.items():
        found = of.seconds(lambda call=call: (call(), torch.cuda.synchronize()), given.repeats)
        yield told({"peer": f"torch {name}", "size": "x".join(map(str, sizes[name]))}, found)


def transforms(of: Place, given: Options, count: int, m: int, n: int) -> Iterator[dict[str, Any]]:
    """All panels, forward and inverse."""
    xp, width = of.xp, m * n
    basis = xp.linalg.qr(xp.asarray(np.random.default_rng(1).standard_normal((count, count))))[0]
    for precision in Precision:
        kernels = tensor_kernels(given.device, TensorShape(count, count, m, n), precision, "gram64", given.threads)
        workspace = bound(of, kernels)
        u = xp.ascontiguousarray(basis.astype(precision.compute))
        x = xp.ones((count, width), precision.storage)
        out = xp.empty_like(x)
        for inverse in (False, True):

            def run(kernels: Any = kernels, u: Any = u, x: Any = x, out: Any = out, inverse: bool = inverse) -> None:
                for at in range(0, width, PANEL_COLUMNS):
                    columns = slice(at, min(at + PANEL_COLUMNS, width))
                    kernels.transform(of.stream, u, x[:, columns], out[:, columns], inverse=inverse)

            found = of.seconds(run, given.repeats)
            names = {"kernel": "transform", "precision": precision.value, "size": f"{count}x{m}x{n}"}
            yield told(names | {"way": "inverse" if inverse else "forward"}, found) | {"flops": 2 * count * count * width}
        kernels.close()
        del workspace


TAKES = {"devices": "cuda:0", "sizes": list(SIZES), "repeats": 5, "threads": 1}


def run(options: Options) -> dict[str, Any]:
    """Time all sizes."""
    of = place_of(options.device)
    cases: list[dict[str, Any]] = []
    for size in options.sizes:
        count, m, n = map(int, size.split("x"))
        print(size, flush=True)
        for timed in (thresholds, peers, transforms):
            cases += timed(of, options, count, m, n)
    about = {"benchmark": "tensor_kernels", "device": options.device, "threads": options.threads, "repeats": options.repeats}
    return about | {"lambda": LAMBDA, "noise": NOISE, "change": CHANGE, "cases": cases}
