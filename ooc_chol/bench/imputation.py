"""``ooc-chol bench imputation``: whole missing slices, errors and seconds beside the paper's and beside NumPy's SVD.

The paper's case (Zhou and Zhang 2021, section 6) is the graph of ego-Facebook, a file of edges from SNAP, and a slice of 50 x 50
of rank 5 at each of its 4,039 vertices in the Fourier domain. Errors are of the whole tensor, ``||found - true|| / ||true||``,
and their squares, since its Table 3 does not say which of the two it has.
"""

from __future__ import annotations

import argparse
import datetime
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from ooc_chol.api.impute import impute
from ooc_chol.bench.results import commit, machine, write_json
from ooc_chol.calls.options import count
from ooc_chol.config import parse_devices
from ooc_chol.hardware.registry import device_kind, resolve_devices
from ooc_chol.sparse.pack import block_csr
from ooc_chol.sparse.sources.edges import edge_list
from ooc_chol.tensors.fourier import GraphFourier
from ooc_chol.tensors.generators import low_rank_tensor, random_mask
from ooc_chol.tensors.report import Imputed

_RESULTS = Path("benchmarks/results/imputation")
#: Errors of the paper's Table 3 by share of slices that are observed, and the mean of its seconds (RTX 6000; MATLAB).
TABLE_3 = {0.5: 0.038, 0.6: 0.032, 0.7: 0.018, 0.8: 0.008, 0.9: 0.001}
PAPER_SHAPE = (4039, 50, 50)
PAPER_SECONDS = {"gpu optimised": 6.75, "gpu baseline": 522.04, "matlab": 1051.73}
#: A missing slice is off when its error exceeds this share of its norm; an eigenvector is hidden when more than so much of its
#: squared norm lies at missing vertices.
OFF, HIDDEN = 0.01, 0.9
#: Peers of which all steps are run; a step by NumPy's SVD is always measured, unless none is wanted.
_PEERS = ("fancyimpute",)


def add_imputation(what: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of ``bench``."""
    parser = what.add_parser("imputation", help="imputation of whole missing slices of a tensor on a graph; writes a JSON file")
    parser.add_argument("--case", required=True, help="name of the result file")
    parser.add_argument("--edges", type=Path, help="file of edges, a pair of numbers a line (default: a random graph)")
    parser.add_argument(
        "--size",
        type=_size,
        help="slices, rows and columns of the tensor (default: a slice of 50x50 for each vertex, 4039 of them)",
    )
    parser.add_argument("--rank", type=count, default=5, help="rank of each slice in the Fourier domain (default: 5)")
    parser.add_argument("--degree", type=float, default=10.0, help="mean degree of a random graph (default: 10)")
    shares = "shares of slices that are observed (default: those of the paper's Table 3)"
    parser.add_argument("--shares", type=float, nargs="+", default=list(TABLE_3), help=shares)
    parser.add_argument("--svt", default="auto", help="how slices are thresholded, as for oc.impute (default: auto)")
    parser.add_argument("--precision", help="FFF, FDF or DDD, as for oc.impute (default: that of the tensor)")
    parser.add_argument("--shrinkage", default="garrote", help="'garrote' (default) or 'soft'")
    parser.add_argument("--momentum", type=float, default=0.7, help="part of a step that is added to it (default: 0.7)")
    parser.add_argument("--n-lambdas", type=count, default=20, help="most values of lambda (default: 20)")
    parser.add_argument("--tol", type=float, default=1e-8, help="change at which a lambda has converged (default: 1e-8)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tensor, its mask and a random graph (default: 0)")
    parser.add_argument("--devices", type=parse_devices, help="device names with commas between, or a count")
    parser.add_argument("--memory-budget", help="memory per device, such as '16 GiB'; by default as oc.impute takes it")
    parser.add_argument("--peers", nargs="*", choices=_PEERS, default=[], help="libraries to run beside, where installed")
    parser.add_argument("--no-peer", action="store_true", help="leave the step by NumPy's SVD out")
    parser.add_argument("--output", type=Path, default=_RESULTS, help=f"folder (default: {_RESULTS})")
    parser.epilog = (
        "examples:\n  ooc-chol bench imputation --case facebook --edges facebook_combined.txt\n"
        "  ooc-chol bench imputation --case small --size 300x50x50 --shares 0.8"
    )
    parser.set_defaults(run=run_imputation)


def _size(text: str) -> tuple[int, int, int]:
    """A shape such as ``300x50x50``."""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write slices, rows and columns, such as 300x50x50")
    return int(parts[0]), int(parts[1]), int(parts[2])


def run_imputation(options: argparse.Namespace) -> None:
    """Run all shares; the file is written anew after each."""
    if missing := [name for name in options.peers if find_spec(name) is None]:
        raise ValueError(f"--peers {missing[0]}: it is not installed; install it, or leave it out")
    if wrong := [share for share in options.shares if not 0 < share < 1]:
        raise ValueError(f"--shares {wrong[0]:g}: a share of slices that are observed is above 0 and below 1")
    graph, shape = _graph_and_shape(options)
    since = time.perf_counter()
    fourier = GraphFourier(graph, devices=options.devices)
    fourier_seconds = time.perf_counter() - since
    x = low_rank_tensor(fourier, *shape[1:], options.rank, seed=options.seed)
    print(f"{shape[0]} slices of {shape[1]} x {shape[2]}, rank {options.rank}; eigenvectors {fourier_seconds:.3g} s", flush=True)
    is_papers = options.edges is not None and shape == PAPER_SHAPE
    names = resolve_devices(options.devices)
    content = options.answer = {
        "case": "imputation",
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(not device_kind(names[0]).is_in_host_memory),
        "graph": options.edges.name if options.edges else f"random, mean degree {options.degree:g}",
        "shape": list(shape),
        "rank": options.rank,
        "seed": options.seed,
        "devices": list(names),
        "memory_budget": options.memory_budget,
        "fourier_seconds": fourier_seconds,
        "fourier_devices": list(fourier.devices),
        "paper_seconds": PAPER_SECONDS if is_papers else None,
        "runs": [],
    }
    path = options.output / f"{options.case}.json"
    for share in options.shares:
        told = _one_share(x, fourier, share, options)
        content["runs"].append({**told, "paper_error": TABLE_3.get(share)} if is_papers else told)
        write_json(content, path)
    print(f"written to {path}")


def _graph_and_shape(options: argparse.Namespace) -> tuple[csr_array, tuple[int, int, int]]:
    """The graph that is asked for, and a tensor's shape over it."""
    if options.edges is None:
        shape = options.size or PAPER_SHAPE
        return random_graph(shape[0], options.degree, options.seed), shape
    graph = edges_of(options.edges)
    shape = options.size or (graph.shape[0], *PAPER_SHAPE[1:])
    if shape[0] != graph.shape[0]:
        raise ValueError(f"--size has {shape[0]} slices, but {options.edges} has {graph.shape[0]} vertices: one slice is of each")
    return graph, shape


def edges_of(path: Path) -> csr_array:
    """The graph of a file of edges, all of weight 1 in both directions."""
    with block_csr(edge_list(path)) as packed:
        graph = csr_array(packed.tocsr())
    graph.setdiag(0)
    graph.eliminate_zeros()
    return graph


def random_graph(n: int, degree: float, seed: int) -> csr_array:
    """Edges between any two of n vertices with one probability, of that mean degree before repeated ones are dropped."""
    one, other = np.random.default_rng(seed).integers(0, n, (2, round(n * degree / 2)))
    one, other = one[one != other], other[one != other]
    ones = np.ones(2 * len(one))
    graph = csr_array(coo_array((ones, (np.append(one, other), np.append(other, one))), shape=(n, n)))
    graph.data[:] = 1.0
    return graph


def _one_share(x: NDArray[Any], fourier: GraphFourier, share: float, options: argparse.Namespace) -> dict[str, Any]:
    """One share: the run, its error, and the peers."""
    mask = random_mask(x.shape, share, seed=options.seed)
    asked = {name: getattr(options, name) for name in ("momentum", "shrinkage", "tol", "n_lambdas")}
    places = {"devices": options.devices, "memory_budget": options.memory_budget}
    since = time.perf_counter()
    found: Imputed = impute(x, mask, fourier, svt=options.svt, precision=options.precision, **asked, **places)
    seconds = time.perf_counter() - since
    report = found.report
    told: dict[str, Any] = {"share": share, **asked, **errors_of(found.tensor, x, mask, fourier.basis)}
    told |= {"seconds": seconds, "seconds_a_step": seconds / report.steps}
    if not options.no_peer:
        zeroed = np.where(mask[:, None, None], x, 0)
        told["numpy_svd_seconds_a_step"] = _plain_step(zeroed, mask, fourier.basis, 0.1 * report.largest)
    if "fancyimpute" in options.peers:
        told["fancyimpute"] = _soft_impute(x, mask)
    print(f"{report}\n  {share:g} observed: error {told['error']:.3g}, squared {told['squared_error']:.3g}", flush=True)
    return told | {"report": report.to_dict()}


def errors_of(found: NDArray[Any], x: NDArray[Any], mask: NDArray[np.bool_], basis: NDArray[Any]) -> dict[str, Any]:
    """Error of the whole tensor, its square, and its parts, by name.

    ``off`` counts slices with an error above 1 % of their norm, ``hidden_eigenvectors`` those of which more than 90 % lies at
    missing vertices.
    """
    squares = np.array([np.sum(np.square(one.astype(np.float64) - other)) for one, other in zip(found, x, strict=True)])
    sizes = np.array([np.sum(np.square(each.astype(np.float64))) for each in x])
    is_off = squares > OFF**2 * sizes
    hidden = np.sum(np.square(basis[~mask]), axis=0)
    return {
        "error": float(np.sqrt(squares.sum() / sizes.sum())),
        "squared_error": float(squares.sum() / sizes.sum()),
        "missing": int((~mask).sum()),
        "off": int(is_off.sum()),
        "error_of_the_rest": float(np.sqrt(squares[~is_off].sum() / sizes.sum())),
        "hidden_eigenvectors": int((hidden > HIDDEN).sum()),
        "largest_hidden_share": float(hidden.max()),
    }


def _plain_step(x: NDArray[Any], mask: NDArray[np.bool_], basis: NDArray[Any], lam: float) -> float:
    """Seconds of one step of the same algorithm in NumPy, float32, by SVD."""
    u, flat = basis.astype(np.float32), x.reshape(len(x), -1)
    since = time.perf_counter()
    left, values, right = np.linalg.svd((u.T @ flat).reshape(-1, *x.shape[1:]), full_matrices=False)
    z = (left * np.maximum(values - np.float32(lam), 0)[:, None, :]) @ right
    made = (u @ z.reshape(len(z), -1)).reshape(x.shape)
    np.where(mask[:, None, None], x, made)
    return time.perf_counter() - since


def _soft_impute(x: NDArray[Any], mask: NDArray[np.bool_]) -> dict[str, float]:
    """SoftImpute of fancyimpute on the unfolding of a row for each slice: it knows no graph, and rows that are missing whole."""
    flat = x.reshape(len(x), -1).astype(np.float64)
    given = np.where(mask[:, None], flat, np.nan)
    since = time.perf_counter()
    found = import_module("fancyimpute").SoftImpute(verbose=False).fit_transform(given)
    seconds = time.perf_counter() - since
    return {"seconds": seconds, "error": float(np.linalg.norm(found - flat) / np.linalg.norm(flat))}
