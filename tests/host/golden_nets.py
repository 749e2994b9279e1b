"""Results of each system of the package, which must not change unnoticed: plans, results, keys, headers of files, traces.

``python -m tests.host.golden_nets`` writes the file anew: a deliberate change, in a commit of its own with its reason.
A case has two parts. What it says ``everywhere`` depends on no machine: budgets, rates and devices are given, each call of BLAS
has one thread, and fields that vary are left out by name. Its ``bits`` belong to one BLAS library on one kind of processor.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_array, save_npz
from threadpoolctl import threadpool_limits

import ooc_chol as oc
from ooc_chol.apps import geostat, imputation, spectral
from tests.apps.spectral.drawn_images import two_discs
from tests.apps.spectral.graphs_made import grid
from tests.builders import cluster_plan
from tests.golden import GoldenFile, digest, flat, library, names_of, told, versions, without
from tests.host.checkpoint_runs import StopError, stop_at
from tests.host.eigen_matrices import adjacency
from tests.host.golden import cauchy
from tests.inside.cli import main
from tests.inside.sparse import store_pass_rates
from tests.plan.golden import cases as dense_cases
from tests.tensor_runs import random_graph

FILE = GoldenFile(Path(__file__).with_name("golden_nets.json"), "tests.host.golden_nets")

#: Fields that vary from run to run, or with versions of packages.
VARYING = {
    "affinity_seconds", "created_by", "entries_per_second", "refine_seconds", "scan_seconds", "search_seconds", "seconds",
    "signature", "solve_seconds", "sweep_seconds", "versions", "writer",
}  # fmt: skip
#: Parts of reports that cases of their own hold.
ELSEWHERE = {"key", "plan"}
#: Fields that are bits, or name what bits belong to.
OF_BITS = {
    "blocks", "device_model", "devices", "graph", "history", "index_hash", "library", "state", "threads_per_call"
}  # fmt: skip

HOST = {"devices": "host:0", "memory_budget": "64 MiB"}
DENSE = {"tile_size": 32, "devices": "host:0", "memory_budget": "200 KiB"}
#: About those of an H200, which plans predict seconds by.
RATES = oc.rates.PassRates(link=5.5e10, memory=2.0e12, gathers=3.5e10, single_gathers=4.7e10, launch=5e-5)
FACTS = ((1 << 22, 1 << 22), 1 << 26, "pattern")


class Facts(NamedTuple):
    """Record of a case."""

    everywhere: Mapping[str, Any] = {}
    bits: Mapping[str, Any] = {}

    def told(self) -> dict[str, Any]:
        """Both parts as JSON has them; a part that is empty is left out."""
        return {name: told(part) for name, part in self._asdict().items() if part}


# files, read by their bytes alone


def factor_header(path: Path) -> dict[str, Any]:
    """Header of a file of L."""
    content = path.read_bytes()
    magic, length, _ = struct.unpack_from("<8sQI", content)
    return {"magic": magic.decode(), **json.loads(content[20 : 20 + length])}


def block_header(path: Path) -> dict[str, Any]:
    """Header of a file of blocks: a packed matrix, or a checkpoint."""
    content = path.read_bytes()
    magic, version, _, start, length, _ = struct.unpack_from("<8sIIQQQ", content)
    return {"magic": magic.decode(), "version": version, **json.loads(content[start : start + length])}


def zarr_documents(path: Path) -> dict[str, Any]:
    """Attributes of a Zarr group and its arrays."""
    found = sorted(path.rglob("zarr.json"))
    return {each.parent.relative_to(path).as_posix(): json.loads(each.read_text()) for each in found}


def header_facts(header: Mapping[str, Any]) -> Facts:
    """A header, bits among its fields apart."""
    everything = flat({"header": without(header, VARYING)})
    bits = {name: each for name, each in everything.items() if OF_BITS.intersection(name.split(": "))}
    return Facts({"header": without(header, VARYING | OF_BITS)}, bits)


def labels(trace: oc.Trace) -> dict[str, str]:
    """Names of events by their tracks, numbers aside."""
    found = {(f"{one.device} {one.stream}", re.sub(r"\d+", "#", f"{one.kind} {one.label}")) for one in trace.records}
    return {track: ", ".join(sorted(label for other, label in found if other == track)) for track, _ in sorted(found)}


def run_facts(figures: Mapping[str, Any], trace: oc.Trace | None = None, **bits: Any) -> Facts:
    """Report of a run: names of figures and of events everywhere; figures but seconds beside bits."""
    events = {} if trace is None else {"events": labels(trace)}
    own = without(figures, ELSEWHERE)
    return Facts({"figures": names_of(own), **events}, {**bits, "figures": without(own, VARYING)})


def archive(path: Path) -> dict[str, str]:
    """Arrays of an ``.npz`` file: types, shapes, and the mark that tells what it is."""
    with np.load(path) as file:
        arrays = {name: f"{file[name].dtype} {file[name].shape}" for name in file}
        return arrays | ({"format": file["format"].tobytes().decode()} if "format" in file else {})


# dense plans, files and traces


def _matrix() -> np.ndarray:
    return cauchy(160, 0.05, 2, 1e-3)


def dense_plans(folder: Path) -> Facts:
    """Figures of some plans whose every step golden_plans.json holds."""
    names = ("native, 1 host, 24 slots", "native, 4 cuda, 8 slots", "mixed residue, 1 cuda")
    plans = dict(dense_cases())
    return Facts({name: plans[name].plan().to_dict() for name in names})


def factor_file(folder: Path, **options: Any) -> Facts:
    """The header of a complete file of L, and the file of its trace."""
    with oc.cholesky(_matrix(), store=folder / "l.ooc", trace=True, **DENSE, **options) as factor:
        assert factor.trace is not None
        factor.trace.save(folder / "l.pftrace")
        run = run_facts(factor.report.to_dict(), factor.trace)
    loaded, header = oc.Trace.load(folder / "l.pftrace"), header_facts(factor_header(folder / "l.ooc"))
    assert labels(loaded) == run.everywhere["events"]
    has_mark = b"\x08\x01\x12\x05fetch" in (folder / "l.pftrace").read_bytes()
    file = {"has its mark": has_mark, "says": " ".join(loaded.metadata)}
    return Facts({**header.everywhere, **run.everywhere, "trace file": file}, header.bits)


def solutions(folder: Path) -> Facts:
    """Answers of a factor."""
    x = np.random.default_rng(2).random((160, 3))
    with oc.cholesky(_matrix(), **DENSE) as factor:
        bits = {
            "solve": factor.solve(x),
            "half": factor.solve_triangular(x),
            "product": factor.matmul(x),
            "logdet": factor.logdet(),
        }
        return Facts({}, {**bits, "rows": factor.rows(range(40, 70), 50)})


def unfinished_factor(folder: Path) -> Facts:
    """The header that a run leaves which ended early, with its checkpoint."""
    with suppress(StopError):
        oc.cholesky(stop_at(_matrix(), 30), checkpoint=folder / "l.ooc", **DENSE)
    return header_facts(factor_header(folder / "l.ooc.partial"))


def factor_group(folder: Path) -> Facts:
    """The documents of a Zarr group."""
    oc.cholesky(_matrix(), store=folder / "l.zarr", precision_threshold=1e-4, **DENSE).close()
    return header_facts(zarr_documents(folder / "l.zarr"))


# the cluster's plan


def cluster_plans(folder: Path) -> Facts:
    """Plans from facts of workers that are not there."""
    bare = {"memory_bytes": 64 << 30}
    host = {**bare, "flops_per_second": 50e9, "panel_flops_per_second": 25e9}
    gpu = {**host, "flops_per_second": 1e14, "panel_flops_per_second": 3e13, "link_bytes_per_second": 5e10}
    network, size = {"network_bytes_per_second": 25e9}, (65_536, 1024)
    rates = {**network, "storage_bytes_per_second": 2e9}
    plans = {
        "hosts": cluster_plan(*size, [host] * 4, rates),
        "GPUs": cluster_plan(*size, [gpu] * 3, rates, height=4, a_is_sent=True, order="chains"),
        "Zarr": cluster_plan(*size, [host] * 2, rates, store="zarr", itemsize=4),
        "no rates": cluster_plan(*size, [bare] * 2, network),
    }
    return Facts({name: plan.to_dict() for name, plan in plans.items()})


# products and eigenpairs


def _graph() -> csr_array:
    return adjacency(600, 2400, 3)


def sparse_plans(folder: Path) -> Facts:
    """Plans of products and of eigenpairs, with rates and without, and the file of rates."""
    plans: dict[str, Any] = {}
    for devices in ("cuda:0", ["cuda:0", "cuda:1"], "host:0"):
        where = {"devices": devices, "memory_budget": "1 GiB"}
        plans[f"multiply, {devices}"] = oc.plan_multiply(FACTS, 12, precision="FDF", **where)
        plans[f"eigsh, {devices}"] = oc.plan_eigsh(FACTS, 8, which="SA", precision="FFF", **where)
    store_pass_rates("host:0", RATES)
    plans["multiply, rates"] = oc.plan_multiply(FACTS, 12, devices="host:0", memory_budget="1 GiB")
    plans["eigsh, rates"] = oc.plan_eigsh(FACTS, 24, devices="host:0", memory_budget="4 GiB")
    [figures] = json.loads((folder / "cache" / "rates.json").read_text())["passes"].values()
    return Facts({name: plan.to_dict() for name, plan in plans.items()} | {"file of rates": figures})


def measured_rates(folder: Path) -> Facts:
    """The fields of the file of rates."""
    oc.rates.measure_rates(16, "host:0", quick=True)
    [sizes] = json.loads((folder / "cache" / "rates.json").read_text()).values()
    return Facts({"file of rates": names_of(sizes)})


def products(folder: Path) -> Facts:
    """``A X`` of a packed file, in each precision, and its header."""
    matrix, x = _graph(), np.random.default_rng(0).random((600, 3))
    matrix.data = np.random.default_rng(1).random(matrix.nnz)
    path, bits = folder / "a.oocsr", {}
    with oc.block_csr(matrix, store=path) as packed:
        for precision in ("DDD", "FDF", "FFF"):
            bits[precision] = oc.multiply(packed, x, precision=precision, **HOST)
        with oc.multiplier(packed, 3, trace=True, **HOST) as multiplier:
            multiplier(x)
            run = run_facts(multiplier.report.to_dict(), multiplier.trace, **bits)
    header = header_facts(block_header(path))
    return Facts({**header.everywhere, **run.everywhere}, {**header.bits, **run.bits})


def eigenpairs(folder: Path, **options: Any) -> Facts:
    """Pairs of the Laplacian of a graph, certified, and the events of the run."""
    pairs = oc.eigsh(oc.laplacian(_graph()), 4, trace=True, **HOST, **options)
    return run_facts(pairs.report.to_dict(), pairs.trace, w=pairs.eigenvalues, v=pairs.eigenvectors)


def eigen_checkpoint(folder: Path) -> Facts:
    """The header of a checkpoint, and the key that it belongs to."""
    path = folder / "a.ooceig"
    pairs = oc.eigsh(oc.laplacian(_graph()), 4, which="LA", ncv=24, block=1, checkpoint=path, **HOST)
    content = block_header(path)
    header, state = header_facts(content), names_of(content["facts"]["state"])
    key = content["facts"]["key"]
    bare = pairs.report.key
    assert {**key, "A": None} == {**bare, "A": None} and (bare["A"]["shape"], key["A"]["shape"]) == ([600, 600], [600, 600])
    return Facts({**header.everywhere, "state": state}, header.bits)


def triplets(folder: Path) -> Facts:
    """Singular triplets of a tall matrix."""
    found = oc.svds(_graph()[:, :300], 3, ncv=24, block=2, trace=True, **HOST)
    return run_facts(found.report.to_dict(), found.trace, u=found.u, s=found.s, vt=found.vt)


# imputation


def tensor_plans(folder: Path) -> Facts:
    """Plans of imputations."""
    shape = (2600, 128, 96)
    plans = {
        "GPU": oc.plan_impute(shape, "slices", None, devices="cuda:0", memory_budget="2 GiB", precision="FFF"),
        "GPUs": oc.plan_impute(shape, "entries", 1300, devices=["cuda:0", "cuda:1"], memory_budget="2 GiB"),
        "host": oc.plan_impute(shape, "slices", None, devices="host:0", memory_budget="2 GiB", svt="gram64", work_folder=folder),
    }
    return Facts({name: plan.to_dict() for name, plan in plans.items()})


def imputed(folder: Path, **options: Any) -> Facts:
    """A tensor over a graph, and the events of the run."""
    fourier = oc.GraphFourier(random_graph(24, seed=4), devices="host:0")
    tensor = np.random.default_rng(5).integers(-9, 9, (24, 8, 6)) / 8.0
    mask = oc.testing.random_mask(tensor.shape, 0.8, by="entry", seed=6)
    short = {"n_lambdas": 4, "max_inner": 3, "memory_budget": "1 GiB", **HOST, **options}
    found = oc.impute(tensor, mask, fourier, trace=True, checkpoint=folder / "x.oocimp", **short)
    content = block_header(folder / "x.oocimp")
    header, history = header_facts(content), names_of(content["facts"]["history"])
    imputation.write_tensor(folder / "x.npz", found.tensor, mask=mask, history=found.history)
    run = run_facts(found.report.to_dict(), found.trace, tensor=found.tensor)
    everywhere = {**header.everywhere, **run.everywhere, "history": history, "file": archive(folder / "x.npz")}
    return Facts(everywhere, {**header.bits, **run.bits})


# graphs and images


def halves(folder: Path) -> Facts:
    """A spectral bisection, and the file of its parts."""
    found = spectral.bisect(grid(60, 41), seed=1, preconditioner="diagonal", **HOST)
    spectral.write_partition(folder / "g.part", found.labels)
    return run_facts(found.to_dict(), file=digest((folder / "g.part").read_bytes()))


def parts(folder: Path) -> Facts:
    """Parts of a graph, of other weights than one."""
    weights = grid(24, 17)
    weights.data = 1.0 + (weights.indices + np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))) % 5
    found = spectral.partition(weights, 3, seed=1, preconditioner="diagonal", **HOST)
    return run_facts(found.to_dict())


def segments(folder: Path) -> Facts:
    """Segments of an image."""
    image = np.ascontiguousarray(two_discs()[0][::2, ::2])
    found = spectral.normalized_cut(image, radius=3, sigma_i=30, max_ncut=0.1, preconditioner="diagonal", **HOST)
    return run_facts(found.to_dict(), labels=found.labels)


# geostatistics


def _observations() -> geostat.Observations:
    sites = np.random.default_rng(7).random((80, 2))
    return geostat.make_observations(sites, np.cumsum(sites[:, 0] - 0.5) + sites[:, 1] ** 2)


def _settings() -> geostat.FactorSettings:
    return geostat.FactorSettings(tile_size=32, devices=("host:0",), memory_budget="1 MiB")


def fitted(folder: Path, method: str) -> Facts:
    """A fit by one method: estimates, likelihood values, and all lines of its log."""
    log = folder / "fit.jsonl"
    found = geostat.fit(_observations(), smoothness=0.5, method=method, max_evaluations=12, settings=_settings(), checkpoint=log)
    return run_facts(found.to_dict(), lines=without(_lines(log)[1:], VARYING))


def fitted_with_log(folder: Path) -> Facts:
    """The usual fit, and what its log says first and last."""
    run = fitted(folder, "fisher")
    first, *_, last = _lines(folder / "fit.jsonl")
    return Facts({**run.everywhere, "log": first, "a line": names_of(last)}, run.bits)


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def likelihoods(folder: Path) -> Facts:
    """Log-likelihoods of several covariance functions, and what is predicted by one."""
    data, settings, bits = _observations(), _settings(), {}
    models = {
        "exponential": geostat.Matern(variance=1.0, range=0.2, smoothness=0.5, nugget=0.1),
        "smooth": geostat.Matern(variance=2.0, range=0.1, smoothness=1.3, nugget=0.05),
    }
    for name, model in models.items():
        bits[name] = geostat.log_likelihood(data, model, settings=settings).loglik
        bits[f"{name}, REML"] = geostat.log_likelihood(data, model, reml=True, settings=settings).loglik
    sites = np.stack(np.meshgrid(*[np.arange(5) / 4.0] * 2), -1).reshape(-1, 2)
    predicted = geostat.predict(data, models["smooth"], sites, settings=settings)
    return Facts({}, {**bits, "mean": predicted.mean, "variance": predicted.variance})


# commands


def command_files(folder: Path) -> Facts:
    """Files that commands write: names of what they hold."""
    np.save(folder / "a.npy", _matrix())
    save_npz(folder / "g.npz", _graph())
    sites = np.random.default_rng(7).random((20, 3))
    np.savetxt(folder / "t.csv", sites, delimiter=",", header="x,y,z", comments="")
    for words in (
        "factor a.npy --store l.ooc --report r.json --tile-size 32 --quiet",
        "eigsh g.npz -k 2 -o w.npz --quiet",
        "svds g.npz -k 2 -o s.npz --quiet",
        "geostat fit t.csv --x x --y y --value z --smoothness 0.5 --max-evaluations 3 --output m.json --quiet",
        "geostat predict m.json --grid 3,2 --output p.csv --quiet",
    ):
        with chdir(folder), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            assert main([*words.split(), "--devices", "host:0", "--memory-budget", "64 MiB"]) == 0, words
    report, model = (json.loads((folder / name).read_text()) for name in ("r.json", "m.json"))
    data = {"report": report.pop("format"), "model": model["format"], "version": model["version"], "data": model["data"]}
    data["predictions"] = (folder / "p.csv").read_text().partition("\n")[0]
    names = {"names of report": names_of(report), "names of model": names_of(model)}
    return Facts({**data, **names, "pairs": archive(folder / "w.npz"), "triplets": archive(folder / "s.npz")})


#: Every case by name.
CASES: dict[str, Callable[[Path], Facts]] = {
    "dense: plans": dense_plans,
    "dense: file": factor_file,
    "dense: file, mixed": lambda folder: factor_file(folder, precision_threshold=1e-4),
    "dense: unfinished file": unfinished_factor,
    "dense: solutions": solutions,
    "dense: Zarr group": factor_group,
    "cluster: plans": cluster_plans,
    "sparse: plans": sparse_plans,
    "rates: file": measured_rates,
    "multiply": products,
    "eigsh: Lanczos": lambda folder: eigenpairs(folder, which="LA", ncv=32, block=2),
    "eigsh: Chebyshev filter": lambda folder: eigenpairs(folder, which="SA", ncv=32, block=2, degree=6),
    "eigsh: LOBPCG": lambda folder: eigenpairs(folder, which="SA", method="lobpcg", null=np.ones(600)),
    "eigsh: sigma": lambda folder: eigenpairs(folder, sigma=2.03, ncv=24),
    "eigsh: FDF": lambda folder: eigenpairs(folder, which="LA", ncv=32, block=2, precision="FDF"),
    "eigsh: checkpoint": eigen_checkpoint,
    "svds": triplets,
    "impute: plans": tensor_plans,
    "impute: Gram matrices": lambda folder: imputed(folder, svt="gram64"),
    "impute: subspaces": lambda folder: imputed(folder, svt="subspace", precision="FDF"),
    "bisect": halves,
    "partition": parts,
    "segments": segments,
    "fit: Fisher": fitted_with_log,
    "fit: COBYQA": lambda folder: fitted(folder, "cobyqa"),
    "fit: Vecchia": lambda folder: fitted(folder, "vecchia"),
    "likelihood and kriging": likelihoods,
    "commands: files": command_files,
}


@contextmanager
def _surroundings(folder: Path) -> Iterator[None]:
    """One thread in each call of BLAS, and no rates that somebody has measured."""
    with threadpool_limits(limits=1, user_api="blas"), patch.dict(os.environ, OOC_CHOL_CACHE=str(folder / "cache")):
        yield


@cache
def found(name: str) -> dict[str, Any]:
    """Record of a case; computed once for both of its parts."""
    with TemporaryDirectory() as folder, _surroundings(Path(folder)):
        return CASES[name](Path(folder)).told()


if __name__ == "__main__":
    FILE.write({"library": library(), "versions": versions(), "cases": {name: found(name) for name in CASES}})
