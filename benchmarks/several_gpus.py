"""Whole calls on one GPU and on several: seconds of the first call and of second ones, their parts, equal bits, ratio to one.

    python -m benchmarks several_gpus --name h100x2 --devices cuda:0,cuda:1

Factorizations of covariances of ``mixed_families``, eigenpairs of an R-MAT graph, an imputation, and of random sites a
likelihood with its gradient and kriging, each on the first of the devices, the first two, and so on, or so many as ``--counts``
says. The median of the second calls counts; the report is the last one's. ``--trace`` adds a call with a trace, whose summary
and seconds by cause stand beside.
``--n`` makes everything small: the order of matrices, vertices of the graph, and eight times the slices of the tensor.

Rates are measured first, quickly. The status is 1 where several devices gave other bits than the first ones at the same key, or
a call failed: all cases are run before. The planner's choice of a tile is part of the key, and may be another one for several
devices; ``--tile-size`` is for all.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh3_64_hexdigest

import ooc_chol as oc
from benchmarks.mixed_families import FAMILIES, quick_rates, source
from benchmarks.running import Options, Parser, attempt, seconds_of
from ooc_chol.apps import geostat
from ooc_chol.apps.imputation import neighbour_graph
from ooc_chol.hardware.registry import resolve_devices
from ooc_chol.tracing.records import TraceRecord
from ooc_chol.tracing.timeline import timeline

FOLDER = "several_gpus"


class Problem(NamedTuple):
    """A call that is made on several numbers of devices."""

    size: str
    call: Callable[..., Any]  #: Takes ``devices`` and ``trace``
    bits: Callable[[Any], str]  #: What is compared of its result
    has_trace: bool = True


@contextmanager
def factored(family: str, order: int, options: Options, **how: Any) -> Iterator[Problem]:
    """A factorization, compared by its log-determinant, which every tile of L takes part in."""
    order = options.n or order
    call = partial(oc.cholesky, source(order, *FAMILIES[family]), tile_size=options.tile_size, **how)
    yield Problem(str(order), call, lambda factor: factor.logdet().hex())


@contextmanager
def eigenpairs(options: Options) -> Iterator[Problem]:
    """Eigenpairs of an R-MAT graph, compared by all their digits."""
    graph = oc.testing.rmat(options.n.bit_length() - 1 if options.n else 25, devices=options.devices)
    with oc.block_csr(graph) as a:
        yield Problem(graph.name, partial(oc.eigsh, a, k=8, tol=1e-6, precision="FDF"), lambda pairs: digest(*pairs))


@contextmanager
def imputed(options: Options, places: int = 1300, size: int = 512) -> Iterator[Problem]:
    """A tensor of rank 3 in the Fourier domain of random places, a fifth of whose slices is missing."""
    if options.n:
        places, size = max(16, options.n // 8), 24
    graph = neighbour_graph(np.random.default_rng(2).random((places, 2)), 8)
    fourier, rng = oc.GraphFourier(graph, devices=options.device), np.random.default_rng(0)
    left, right = (rng.standard_normal((places, size, 3)).astype(np.float32) for _ in range(2))
    x = np.tensordot(np.asarray(fourier.basis, np.float32), left @ right.transpose(0, 2, 1), 1)
    call = partial(oc.impute, x, oc.testing.random_mask(x.shape, 0.8), fourier, precision="FFF")
    yield Problem(" x ".join(map(str, x.shape)), call, lambda found: digest(found.tensor))


def observed(options: Options) -> tuple[geostat.Observations, geostat.Matern]:
    """Values at random sites, as many as MODIS has, and an exponential covariance with a nugget."""
    sites = np.random.default_rng(3).random((options.n or 105_569, 2))
    values = np.sin(9.0 * sites[:, 0]) + sites[:, 1]
    return geostat.make_observations(sites, values), geostat.Matern(1.0, 0.1, 0.5, 0.05)


@contextmanager
def gradient(options: Options) -> Iterator[Problem]:
    """A log-likelihood and its gradient by random probes, compared by all their digits."""
    observations, model = observed(options)

    def call(devices: list[str], trace: bool) -> geostat.LikelihoodGradient:
        del trace
        settings = geostat.FactorSettings(devices=devices, tile_size=options.tile_size)
        return geostat.log_likelihood_gradient(observations, model, traces="probes", settings=settings)

    yield Problem(
        str(observations.n), call, lambda found: digest(found.gradient, np.array(found.likelihood.loglik)), has_trace=False
    )


@contextmanager
def kriged(options: Options) -> Iterator[Problem]:
    """Means and variances at two fifths as many other sites."""
    observations, model = observed(options)
    places = np.random.default_rng(4).random((observations.n * 2 // 5, 2))

    def call(devices: list[str], trace: bool) -> geostat.Prediction:
        settings = geostat.FactorSettings(devices=devices, tile_size=options.tile_size)
        return geostat.predict(observations, model, places, settings=settings, trace=trace)

    yield Problem(f"{observations.n}, {len(places)} places", call, lambda found: digest(found.mean, found.variance))


def digest(*arrays: Any) -> str:
    """The hash of arrays."""
    return " ".join(xxh3_64_hexdigest(np.ascontiguousarray(each).view(np.uint8)) for each in arrays)


CASES: dict[str, Callable[[Options], AbstractContextManager[Problem]]] = {
    "residue": partial(factored, "rq 30", 131072, fp64="residue"),
    "residue 48 GiB": partial(factored, "rq 30", 163840, fp64="residue", memory_budget="48 GiB"),
    "native": partial(factored, "rq 30", 131072, fp64="native"),
    "weak 1e-5": partial(factored, "ex 200", 131072, precision_threshold=1e-5),
    "weak 400,000": partial(factored, "ex 200", 400_000, precision_threshold=1e-5, memory_budget="74 GiB"),
    "strong 1e-5": partial(factored, "ex 10", 131072, precision_threshold=1e-5),
    **{f"default {order}": partial(factored, "rq 30", order) for order in (4096, 8192, 16384, 32768)},
    "default": partial(factored, "rq 30", 65536),
    "eigsh": eigenpairs,
    "impute": imputed,
    "impute 64 x 64": partial(imputed, places=2100, size=64),
    "gradient": gradient,
    "kriging": kriged,
}


def measured(problem: Problem, devices: tuple[str, ...], options: Options) -> dict[str, Any]:
    """A first call on these devices, some second calls, and one more with a trace."""
    found: dict[str, Any] = {"walls": []}
    for trace in (*[False] * (1 + options.calls), *[True] * (options.trace and problem.has_trace)):
        wall, result = seconds_of(lambda trace=trace: problem.call(devices=list(devices), trace=trace))
        if trace:
            found |= {"traced_wall": wall, "trace": result.trace.summary(), "causes": causes(result.trace.records)}
        else:
            found["walls"].append(wall)
            found |= {"key": {}, "bits": problem.bits(result)}
            if (report := getattr(result, "report", None)) is not None:
                found |= {"seconds": report.seconds.to_dict(), "key": dict(report.key), "page": str(report)}
        if isinstance(result, oc.CholeskyFactor):
            found["bytes_per_entry"] = result.plan.stored_bytes / (result.n * (result.n + 1) / 2)
            result.close()
        del result
    return found


def second_wall(line: Mapping[str, Any]) -> float:
    """Seconds of a second call: the median."""
    return statistics.median(line["walls"][1:])


#: What the stream of products waits for, by the kind of the operation that its next kernel waited for.
CAUSES = {
    "other device": "another GPU",
    "fetch": "links",
    "pull": "links",
    "write": "links",
    "compute": "kernels of other streams",
}


def causes(records: Sequence[TraceRecord]) -> dict[str, float]:
    """Seconds of a run on the stream of products, the mean of all devices: its kernels, and why none ran.

    ``enqueued late`` says that nothing was waited for but the thread that enqueues, or the host's own work.
    """
    run = timeline(records)
    found = dict.fromkeys(["products", *CAUSES.values(), "enqueued late", "over before others"], 0.0)
    for device in run.devices:
        ran, free = run.streams.get((device, "compute"), ()), run.start_ns  # a matrix that is factored whole has another
        for record in ran:
            made = [run.by_step[key] for key in record.after]
            latest = max(made, key=lambda each: each.end_ns, default=record)
            ready = min(max(latest.end_ns, free), record.start_ns) if made else free
            cause = CAUSES.get(latest.kind if latest.device == device else "other device", "enqueued late")
            found[cause] += ready - free
            found["enqueued late"] += record.start_ns - ready
            found["products"] += record.end_ns - record.start_ns
            free = record.end_ns
        found["over before others"] += run.end_ns - free
    return {cause: 1e-9 * total / len(run.devices) for cause, total in found.items()}


def beside(found: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    """The ratio to the first number of devices, what else its bits depend on, and whether they are as promised: of one key."""
    if "error" in found or "error" in first:
        return {"is_right": False}
    key, other = found["key"], first["key"]
    differs = {name: [other.get(name), key.get(name)] for name in {**other, **key} if other.get(name) != key.get(name)}
    same = found["bits"] == first["bits"]
    over = second_wall(first) / second_wall(found)
    return {"first_over_this": over, "same_bits": same, "other_key": differs, "is_right": same or bool(differs)}


#: The case that one GPU takes minutes for: it runs on the most devices only, and where they are so many.
LARGEST, LEAST_FOR_LARGEST = "weak 400,000", 4
TAKES = {"devices": "cuda", "cases": tuple(CASES), "trace": False, "keep_rates": False, "n": int, "tile_size": int}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("--counts", type=int, nargs="+", help="numbers of devices (default: 1, 2, ... all)")
    parser.add_argument("--calls", type=int, default=3, help="second calls, at least 1, of which the median counts (default: 3)")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Every case on every number of devices."""
    options.devices, wrong = resolve_devices(options.devices), list[str]()
    counts = options.counts or list(range(1, len(options.devices) + 1))
    if options.calls < 1:
        raise ValueError(f"--calls is {options.calls}; give 1 or more")
    if not all(0 < count <= len(options.devices) for count in counts):
        raise ValueError(f"--counts are {counts}, but there are {len(options.devices)} devices")
    if options.on_gpu and not options.keep_rates:
        quick_rates()
    options.about = {"devices": list(options.devices)}
    for name in options.cases:
        with CASES[name](options) as problem:
            first: dict[str, Any] = {}
            if name == LARGEST and counts[-1] < LEAST_FOR_LARGEST:
                print(f"{name}: not run, as that takes {LEAST_FOR_LARGEST} devices or more", flush=True)
                continue
            for count in counts[-1:] if name == LARGEST else counts:
                found = attempt(partial(measured, problem, options.devices[:count], options))
                first = first or found
                found |= beside(found, first)
                wrong += [] if found["is_right"] else [f"{name} on {count}"]
                yield {"measured": name, "size": problem.size, "count": count, **found}
    if wrong:
        sys.exit(f"failed, or other bits of the same key: {', '.join(wrong)}")
