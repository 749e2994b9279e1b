"""Differentiable sparse operations on one GPU, beside torch, cuSPARSE, CuPy and torch-geometric in the same process.

Each case runs in a process of its own, under a time limit of its own, all of them in less than four minutes, and leaves a file
``NAME-CASE.json``, which is written again after each measurement. What a library cannot do is recorded
with its message. Seconds are those of the device, by its events, of one call out of several that are started together; those of
solves are of the clock. ``gcn`` needs torch-geometric for its peer, ``solves`` cuDSS, and ``domains`` the example of that name.

- ``products``: 2-D Poisson, 4096 x 4096 points, float32: forward, forward and backward, the kernels by themselves.
- ``panels``: the same matrix times 64 columns.
- ``spgemm``: the square of 2-D Poisson, 1024 x 1024 points.
- ``gcn``: epochs of a graph convolutional network of two layers on a random graph of 343,565 vertices, degrees skewed.
- ``solves``: 2-D Poisson, 1024 x 1024 points: factor, solve, gradients, second solve.
- ``jax_solves``: the same in JAX, solve and gradients by one jitted function: by cuDSS where the arrays lie, and for 316 x 316
  points beside the host's factors, which a call back brings.
- ``domains``: the example of domain decomposition with 65,536 points.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np

from benchmarks.running import ROOT, Later, Options, Parser, apart, attempt, seconds_of
from ooc_chol.diff import functions, primitives
from ooc_chol.diff.ops import Contract, vjp
from ooc_chol.diff.pattern import Pattern

FOLDER = "diff"
cp, torch, sparse = Later("cupy"), Later("torch"), Later("ooc_chol.diff.torch")
#: Seconds that a case may take, importing included.
LIMITS = {"products": 65, "panels": 45, "spgemm": 25, "gcn": 30, "solves": 30, "jax_solves": 60, "domains": 60}
#: Calls that are timed together, and bytes of the copy that is the yardstick.
AT_ONCE, COPY_BYTES = 5, 1 << 31
CUDA = "cuda:0"


@final
class Record:
    """What a case has found so far, in its file."""

    def __init__(self, options: Any, repeats: int) -> None:
        self._options, self.repeats, self.content = options, repeats, dict[str, Any](measured={})

    def put(self, what: str, found: dict[str, Any]) -> None:
        """Keep what was found under a name, and say it."""
        self.content["measured"][what] = found
        seconds = found.get("seconds")
        told = f"{1e3 * float(np.median(seconds)):.4g} ms" if seconds else ", ".join(f"{k} {v}" for k, v in found.items())
        print(f"  {what}: {told[:200]}", flush=True)
        self._options.write(self.content)

    def time(self, what: str, run: Callable[[], Any], *, at_once: int = AT_ONCE, **about: Any) -> None:
        """Seconds of the device for one call in each repeat, or why there are none."""
        self.attempt(what, lambda: about | {"seconds": device_seconds(run, self.repeats, at_once)})

    def attempt(self, what: str, run: Callable[[], dict[str, Any]]) -> None:
        """What ``run`` finds, or the message with which it fails."""
        found = attempt(run)
        torch.cuda.empty_cache()
        cp.get_default_memory_pool().free_all_blocks()
        self.put(what, found)


def device_seconds(run: Callable[[], Any], repeats: int, at_once: int) -> list[float]:
    """Seconds of one call by events of the device's default stream; two calls before are not counted."""
    run(), run()
    found = []
    for _ in range(repeats):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        for _ in range(at_once):
            run()
        ended.record()
        ended.synchronize()
        found.append(1e-3 * began.elapsed_time(ended) / at_once)
    return found


def clock_seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the clock until the device is done, and the result."""
    torch.cuda.synchronize()
    return seconds_of(lambda: (run(), torch.cuda.synchronize())[0])


def poisson(side: int) -> tuple[Pattern, np.ndarray]:
    """The five-point matrix of a square of so many points a side."""
    at = cp.arange(side * side, dtype=cp.int32)
    row, column = at // side, at % side
    inside = cp.stack([row > 0, column > 0, at >= 0, column < side - 1, row < side - 1], axis=1)
    columns = (at[:, None] + cp.array([-side, -1, 0, 1, side], cp.int32))[inside]
    values = cp.broadcast_to(cp.array([-1, -1, 4, -1, -1], cp.float32), inside.shape)[inside]
    starts = cp.concatenate([cp.zeros(1, cp.int64), cp.cumsum(inside.sum(axis=1))])
    found = starts.get(), columns.get(), values.get()
    del at, row, column, inside, columns, values, starts
    cp.get_default_memory_pool().free_all_blocks()
    return Pattern(found[0], found[1], (side * side, side * side)), found[2]


def made(record: Record, side: int) -> tuple[Pattern, torch.Tensor]:
    """The matrix, its transpose made and copied, with the seconds of that on the host."""
    making, (pattern, values) = seconds_of(lambda: poisson(side))
    v = torch.from_numpy(values).to(CUDA)
    copying, _ = seconds_of(lambda: (pattern.transposed.on(cp.empty(0)), pattern.on(cp.empty(0))))
    found = {"made": making, "transposed and copied": copying, "rows": pattern.n_rows, "entries": pattern.nnz}
    record.put("pattern", found)
    return pattern, v


def torch_matrix(pattern: Pattern, v: torch.Tensor, *, needs_gradient: bool = False) -> torch.Tensor:
    """The same matrix as torch's, on the pattern's own arrays."""
    like = cp.empty(0)
    starts, columns = (torch.from_dlpack(pattern.place(name, like)) for name in ("indptr", "indices"))
    return torch.sparse_csr_tensor(starts, columns, v.detach(), pattern.shape).requires_grad_(needs_gradient)


def largest_difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest difference, relative to the largest number."""
    return float((found - wanted).abs().max() / wanted.abs().max())


def copy_rate(record: Record) -> None:
    """Bytes a second of a copy, both ways counted."""
    a = torch.zeros(COPY_BYTES, dtype=torch.uint8, device=CUDA)
    b = torch.empty_like(a)
    record.put("copy", {"bytes_per_second": 2 * COPY_BYTES / min(device_seconds(lambda: b.copy_(a), record.repeats, AT_ONCE))})


def kernels(record: Record, pattern: Pattern, v: Any, x: Any, g: Any) -> None:
    """The kernels by themselves, of a vector or of many columns."""
    record.time("kernel A x", lambda: primitives.matmul(pattern, v, x))
    record.time("kernel A x, FDF", lambda: primitives.matmul(pattern, v, x, precision="FDF"))
    record.time("kernel sampled", lambda: primitives.sampled(pattern, g, x))
    record.time("kernel A.T g", lambda: primitives.matmul_transposed(pattern, v, g))


def difference(record: Record, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Record how far two results are apart."""
    record.put("difference", {"to torch, relative": largest_difference(ours, theirs)})


def products(record: Record, side: int = 4096) -> None:
    """Products with a vector."""
    copy_rate(record)
    pattern, v = made(record, side)
    n = pattern.n_rows
    v = v * (1 + 0.1 * torch.rand(v.numel(), device=CUDA))
    x, g = torch.rand(n, device=CUDA), torch.rand(n, device=CUDA)
    on_v, on_x, on_g = (cp.from_dlpack(each) for each in (v, x, g))
    kernels(record, pattern, on_v, on_x, on_g)
    record.time("kernel row sums", lambda: primitives.row_sums(pattern, on_v))
    v.requires_grad_(), x.requires_grad_()
    record.time("forward", lambda: sparse.CSR(v.detach(), pattern) @ x.detach())
    record.time("forward and backward", lambda: torch.autograd.grad(sparse.CSR(v, pattern) @ x, (v, x), g))
    theirs = torch_matrix(pattern, v)
    with torch.no_grad():
        difference(record, sparse.CSR(v, pattern) @ x, theirs @ x)
        record.time("torch CSR forward", lambda: theirs @ x)
    y = x.detach()[:, None].requires_grad_()
    leaf = torch_matrix(pattern, v, needs_gradient=True)
    both = "torch.sparse.mm forward and backward"
    record.time(both, lambda: torch.autograd.grad(torch.sparse.mm(leaf, y), (leaf, y), g[:, None]), at_once=1)
    record.time("torch CSR forward and backward", lambda: torch.autograd.grad(leaf @ x, (leaf, x), g), at_once=1)
    matrix = cupy_matrix(pattern, on_v)
    record.time("CuPy CSR forward (cuSPARSE)", lambda: matrix @ on_x)
    wide = on_v.astype(cp.float64), on_x.astype(cp.float64), on_g.astype(cp.float64)
    record.time("kernel A x, float64", lambda: primitives.matmul(pattern, *wide[:2]))
    record.time("kernel A.T g, float64", lambda: primitives.matmul_transposed(pattern, wide[0], wide[2]))


def cupy_matrix(pattern: Pattern, values: Any) -> Any:
    """The same matrix as CuPy's."""
    from cupyx.scipy.sparse import csr_matrix

    places = pattern.place("indices", values), pattern.place("indptr", values)
    return csr_matrix((values, *places), shape=pattern.shape)


def panels(record: Record, side: int = 4096, columns: int = 64) -> None:
    """Products with many columns."""
    pattern, v = made(record, side)
    n = pattern.n_rows
    x, g = torch.rand(n, columns, device=CUDA), torch.rand(n, columns, device=CUDA)
    on_v, on_x, on_g = (cp.from_dlpack(each) for each in (v, x, g))
    kernels(record, pattern, on_v, on_x, on_g)
    v.requires_grad_(), x.requires_grad_()
    record.time("forward and backward", lambda: torch.autograd.grad(sparse.CSR(v, pattern) @ x, (v, x), g), at_once=2)
    theirs = torch_matrix(pattern, v)
    with torch.no_grad():
        difference(record, sparse.CSR(v, pattern) @ x, theirs @ x)
        record.time("torch CSR forward (cuSPARSE, row-major)", lambda: theirs @ x, at_once=2)
    leaf = torch_matrix(pattern, v, needs_gradient=True)
    both = "torch.sparse.mm forward and backward"
    record.time(both, lambda: torch.autograd.grad(torch.sparse.mm(leaf, x), (leaf, x), g), at_once=1)
    matrix, by_columns = cupy_matrix(pattern, on_v), cp.asfortranarray(on_x)
    record.time("CuPy CSR forward (cuSPARSE, column-major)", lambda: matrix @ by_columns, at_once=2)


def spgemm(record: Record, side: int = 1024) -> None:
    """The square of a matrix."""
    pattern, v = made(record, side)
    seconds, triples = seconds_of(lambda: functions.structure_of(pattern, pattern))
    gradients, _ = seconds_of(lambda: [face.ends.on(cp.empty(0)) for face in (triples.by_a, triples.by_b)])
    record.put("structure", {"product": seconds, "both gradients": gradients, "triples": triples.count})
    on_v, op = cp.from_dlpack(v), Contract(triples)
    on_g = cp.ones(triples.pattern.nnz, cp.float32)
    record.time("kernel forward", lambda: op.forward(on_v, on_v))
    record.time("kernels backward", lambda: vjp(op, (on_v, on_v), on_g))
    g, w = torch.from_dlpack(on_g), v.clone().requires_grad_()
    v.requires_grad_()
    both = "forward and backward"
    record.time(both, lambda: torch.autograd.grad((sparse.CSR(v, pattern) @ sparse.CSR(w, pattern)).values, (v, w), g))
    matrix, cotangent = cupy_matrix(pattern, on_v), cupy_matrix(triples.pattern, on_g)
    turned = matrix.T.tocsr()
    record.time("CuPy forward", lambda: matrix @ matrix)
    record.time(
        "CuPy, the three products of forward and backward", lambda: (matrix @ matrix, cotangent @ turned, turned @ cotangent)
    )
    theirs = torch_matrix(pattern, v)
    record.time("torch CSR forward", lambda: theirs @ theirs)
    leaf = torch_matrix(pattern, v, needs_gradient=True)
    record.time("torch CSR forward and backward", lambda: torch.sparse.mm(leaf, leaf).values().sum().backward(), at_once=1)


def random_graph(n: int, edges: int) -> np.ndarray:
    """Both directions of edges between vertices drawn with skewed odds, (2, 2 edges); each once, none to itself."""
    rng = np.random.default_rng(1)
    ends = (n * rng.random((2, edges)) ** 1.5).astype(np.int64)
    order = rng.permutation(n)
    ends = order[ends[:, ends[0] != ends[1]]]
    keys = np.unique(np.concatenate([ends[0] * n + ends[1], ends[1] * n + ends[0]]))
    return np.stack([keys // n, keys % n])


def gcn(record: Record, n: int = 343_565, edges: int = 2_000_000) -> None:
    """Epochs of a graph convolutional network: ours, with learned weights of edges, and torch-geometric's."""
    features, hidden, classes = 128, 16, 7
    graph = random_graph(n, edges)
    degrees = 1.0 + np.bincount(graph[0], minlength=n)
    loops = np.concatenate([graph, np.tile(np.arange(n), (2, 1))], axis=1)
    loops = loops[:, np.argsort(loops[0] * n + loops[1])]
    pattern = Pattern(np.searchsorted(loops[0], np.arange(n + 1)), loops[1], (n, n))
    values = torch.from_numpy((1 / np.sqrt(degrees[loops[0]] * degrees[loops[1]])).astype(np.float32)).to(CUDA)
    record.put("graph", {"vertices": n, "entries": pattern.nnz, "largest degree": int(degrees.max()), "features": features})
    torch.manual_seed(1)
    x, labels = torch.rand(n, features, device=CUDA), torch.randint(classes, (n,), device=CUDA)
    first = torch.randn(features, hidden, device=CUDA) / features**0.5
    second = torch.randn(hidden, classes, device=CUDA) / hidden**0.5

    def trainer(forward: Callable[[], torch.Tensor], weights: Sequence[torch.Tensor]) -> Callable[[], bytes]:
        adam = torch.optim.Adam(weights, lr=0.0)

        def epoch() -> Any:
            adam.zero_grad()
            torch.nn.functional.cross_entropy(forward(), labels).backward()
            adam.step()

        def gradients() -> bytes:
            epoch()
            return b"".join(each.grad.cpu().numpy().tobytes() for each in weights)

        epoch.gradients = gradients  # type: ignore[attr-defined]
        return epoch

    def compare(what: str, epoch: Any) -> None:
        record.time(what, epoch)
        record.attempt(f"{what}: gradients of ten epochs", lambda: {"kinds of bits": len({epoch.gradients() for _ in range(10)})})

    for what, learned in (("epoch", False), ("epoch with weights of edges", True)):
        weights = [each.clone().requires_grad_() for each in (first, second, *([values] if learned else []))]

        def forward(weights: Sequence[torch.Tensor] = weights) -> torch.Tensor:
            a = sparse.CSR(weights[2] if len(weights) == 3 else values, pattern)
            return a @ (torch.relu(a @ (x @ weights[0])) @ weights[1])

        compare(what, trainer(forward, weights))
    record.attempt("torch-geometric", lambda: geometric(graph, x, (first, second), trainer, compare))


def geometric(graph: np.ndarray, x: torch.Tensor, weights: Sequence[torch.Tensor], trainer: Any, compare: Any) -> dict[str, Any]:
    """The same network by torch-geometric, whose weights of edges are kept from epoch to epoch."""
    import torch_geometric
    from torch_geometric.nn import GCNConv

    (features, hidden), classes = weights[0].shape, weights[1].shape[1]
    edges = torch.from_numpy(graph).to(CUDA)
    one, two = (GCNConv(*sizes, cached=True, bias=False).to(CUDA) for sizes in ((features, hidden), (hidden, classes)))
    with torch.no_grad():
        for layer, weight in ((one, weights[0]), (two, weights[1])):
            layer.lin.weight.copy_(weight.T)

    def forward() -> torch.Tensor:
        return two(torch.relu(one(x, edges)), edges)

    compare("torch-geometric's epoch", trainer(forward, [one.lin.weight, two.lin.weight]))
    return {"version": torch_geometric.__version__}


def solves(record: Record, side: int = 1024) -> None:
    """Factor, solve, gradients, and a second solve, of seconds of the clock; values change from round to round."""
    pattern, v = made(record, side)
    v, b = v.double(), torch.rand(side * side, dtype=torch.float64, device=CUDA)

    def rounds() -> dict[str, Any]:
        found: dict[str, list[float]] = {name: [] for name in ("factor", "factor and solve", "gradients", "second solve")}
        worst = 0.0
        for step in range(3):
            values = (v * (1 + 0.01 * step)).requires_grad_()
            a, right = sparse.CSR(values, pattern), b.clone().requires_grad_()
            taken, factor = clock_seconds(lambda a=a: sparse.factorize(a, assume="spd", method="cudss"))
            factor.close()
            found["factor"].append(taken)
            taken, x = clock_seconds(lambda a=a, right=right: sparse.solve(a, right, assume="spd", method="cudss"))
            found["factor and solve"].append(taken)
            taken, _ = clock_seconds(lambda x=x, values=values, right=right: torch.autograd.grad(x.sum(), (values, right)))
            found["gradients"].append(taken)
            taken, _ = clock_seconds(lambda a=a: sparse.solve(a, b + 1, assume="spd", method="cudss"))
            found["second solve"].append(taken)
            worst = max(worst, largest_difference(a.detach() @ x.detach(), b))
        return {"all": found, "residual": worst}

    record.attempt("cuDSS", rounds)


def jax_solves(record: Record, sides: Sequence[int] = (316, 1024)) -> None:
    """Solve and gradients in JAX, of seconds of the clock: the first call, the same values again, and two of other values."""
    import jax

    import ooc_chol.diff.jax as of_jax

    jax.config.update("jax_enable_x64", True)
    gpu = jax.devices("cuda")[0]
    for side in sides:
        pattern, values = poisson(side)
        a = of_jax.CSR(jax.device_put(values.astype(np.float64), gpu), pattern)
        b = jax.device_put(np.random.default_rng(0).random(side * side), gpu)

        def of_method(method: str, a: Any = a, b: Any = b) -> dict[str, Any]:
            def squares(a: Any, b: Any) -> tuple[Any, Any]:
                x = of_jax.solve(a, b, assume="spd", method=method)
                return (x**2).sum(), x

            both = jax.jit(jax.grad(squares, (0, 1), has_aux=True))
            found = [seconds_of(lambda by=by: jax.block_until_ready(both(a * by, b))) for by in (1.0, 1.0, 1.5, 1.25)]
            x = found[0][1][1]
            seconds = dict(
                zip(("first", "the same values", "other values", "others again"), (each[0] for each in found), strict=True)
            )
            return {"all": seconds, "residual": float(abs(of_jax.matmul(a, x) - b).max())}

        for method in ("cudss", "superlu")[: 2 if side < 400 else 1]:
            record.attempt(f"{side} x {side}, {method}", partial(of_method, method))


def domains(record: Record, n: int = 65_536) -> None:
    """The example of domain decomposition, trained by 10 steps."""
    script = ROOT / "examples" / "diff_domain_decomposition.py"
    words = [sys.executable, str(script), "--n", str(n), "--epochs", "10", "--device", "cuda"]

    def example() -> dict[str, Any]:
        how = {"capture_output": True, "text": True, "timeout": LIMITS["domains"] - 8}
        seconds, ran = seconds_of(lambda: subprocess.run(words, check=False, **how))
        found = {"wall_seconds": seconds, "printed": ran.stdout.splitlines()}
        return found | ({"error": ran.stderr[-300:]} if ran.returncode else {})

    record.attempt("example", example)


CASES: dict[str, Callable[[Record], None]] = {
    each.__name__: each for each in (products, panels, spgemm, gcn, solves, jax_solves, domains)
}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="what is measured (default: everything)")
    parser.takes(repeats=5, devices="cuda:0")


def one(case: str, name: str, output: str, repeats: int) -> dict[str, int]:
    """Measure a case in this process; how many things were measured."""
    record = Record(Options(name=f"{name}-{case}", output=Path(output), devices=(CUDA,), force=True), repeats)
    CASES[case](record)
    return {"measured": len(record.content["measured"])}


def files(options: Options) -> list[str]:
    """One for each case, which another process writes."""
    return [f"{options.name}-{case}" for case in options.cases]


def run(options: Options) -> None:
    """Measure each case in a process of its own."""
    if not options.name:
        raise ValueError("--name is needed: the beginning of the names of the result files")
    for case in options.cases:
        print(f"{case}, {LIMITS[case]} s at most", flush=True)
        print(" ", apart(one, case, options.name, str(options.output), options.repeats, seconds=LIMITS[case]), flush=True)
