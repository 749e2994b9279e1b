"""The paper's figures on small problems, the measures of the likelihood beside dense NumPy, the covariance's table."""

from __future__ import annotations

import ctypes
import json
import math
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

import ooc_chol as oc
from benchmarks.paper import figures as paper
from benchmarks.paper import likelihoods as paper_kl
from benchmarks.paper import tables as paper_tables
from benchmarks.paper.likelihoods import KlReference, exact_kl, log_likelihood, measured_error, sampled_kl
from benchmarks.paper.likelihoods import paper_kl as paper_measure
from benchmarks.running import main
from tests.inside.bench import CUDA_CODE, CovarianceProblem, MaternTable, matern
from tests.plan.result_fields import FIELDS

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

#: Measured files that documents cite.
FILES = Path(__file__).resolve().parents[2] / "benchmarks/results/paper"
#: What a configuration says of itself; the rest of what a result file holds is said once for all of them.
RUN_FIELDS = (FIELDS - {"case", "commit", "date", "machine", "peers"}) | {"moduli", "certified_bound", "policy", "formats"}
#: Error of the table beside SciPy's Bessel function, which at nu = 8/9 and x = 2 errs by 2e-14 itself.
TABLE_ERROR = 5e-14


def bench(tmp_path, what, *words) -> tuple[int, dict]:
    """Exit status of a command and what it wrote."""
    status = main([what, "--devices", "host:0", "--name", "small", "--output", str(tmp_path), "--force", "--no-warm-up", *words])
    return status, json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))


def check_run(run: dict) -> None:
    """A configuration has its fields, and they agree."""
    assert set(run) >= RUN_FIELDS
    assert run["bytes"]["planned"] == run["bytes"]["executed"]
    assert run["tflops"] == pytest.approx(run["n"] ** 3 / 3e12 / np.median(run["seconds"]))
    error = run["certified_bound"] or run.get("estimated_error")  # older files have an estimate only
    assert (run["engine"] == "mixed") == (run["precision_threshold"] is not None) == (error is not None)
    assert sum(run["formats"].values()) == math.comb(-(-run["n"] // run["tile_size"]) + 1, 2)
    assert 0.0 <= run["exposed_copy_share"] <= 1.0


# commands


def test_ablation_reproduces_the_order_of_the_papers_volumes(tmp_path, capsys):
    status, content = bench(tmp_path, "paper-ablation", "--n", "192", "256", "--tile-size", "32", "--repeats", "2")
    assert status == 0 and content["volume_order_holds"] and content["figures"] == "6 and 8"
    assert [(run["n"], run["policy"]) for run in content["runs"]] == [(n, p) for n in (192, 256) for p in paper.POLICIES]
    for run in content["runs"]:
        check_run(run)
        assert run["engine"] == "native" and len(run["seconds"]) == 2 and run["out_of_core"]
    for n in (192, 256):
        runs = [run for run in content["runs"] if run["n"] == n]
        moved = {run["policy"]: paper.total_bytes(run) for run in runs}
        assert moved["v3"] <= moved["v2"] <= moved["v1"] < moved["async"]
        assert len({run["logdet"] for run in runs}) == 1, "policies do not touch the arithmetic"
        assert runs[-1]["residual"]["max_scaled_over_sqrt_n"] <= 4.0
    out = capsys.readouterr().out
    for words in ("GH200 58.9 TFLOP/s", "A100-PCIe 935.7", "V3 <= V2 <= V1 <= async: so here", "25 % of L", "small.json"):
        assert words in out


def test_ablation_says_when_a_policy_moved_more(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(paper.PRINTED, "volume_order", ["async", "v3"])
    status, content = bench(tmp_path, "paper-ablation", "--n", "384", "--tile-size", "64", "--policies", "async", "v3")
    assert status == 1 and not content["volume_order_holds"]
    assert "NOT so here" in capsys.readouterr().out


def test_ablation_of_a_small_matrix_takes_tiles_that_its_budget_holds(tmp_path, capsys):
    status, content = bench(tmp_path, "paper-ablation", "--n", "150", "512", "--repeats", "1")
    assert status == 0 and content["volume_order_holds"] is True
    assert {(run["n"], run["tile_size"]) for run in content["runs"]} == {(150, 16), (512, 64)}


@pytest.mark.parametrize(
    ("words", "status"), [(("--memory-budget", "1000"), 1), (("--policies", "v3"), 0), (("--policies", "sync", "planned"), 0)]
)
def test_ablation_claims_nothing_of_fewer_than_two_results(tmp_path, capsys, words, status):
    found, content = bench(tmp_path, "paper-ablation", "--n", "150", "--repeats", "1", *words)
    assert (found, content["volume_order_holds"]) == (status, None)
    assert "nothing to compare here" in capsys.readouterr().out


def test_kl_shrinks_with_the_threshold(tmp_path, capsys):
    words = (
        "--n",
        "256",
        "--tile-size",
        "64",
        "--ranges",
        "weak",
        "strong",
        "--thresholds",
        "1e-5",
        "1e-7",
        "--nu",
        "1/2",
        "8/9",
    )
    status, content = bench(tmp_path, "paper-kl", *words)
    assert status == 0
    runs = content["runs"]
    assert len(runs) == 2 * 2 * 3
    for at in range(0, len(runs), 3):
        reference, coarse, fine = runs[at : at + 3]
        assert reference["precision_threshold"] is None and reference["kl_paper"] == 0.0
        for run in (reference, coarse, fine):
            check_run(run)
            assert run["source"] == "host-array" and run["kl_method"] == "exact" and run["kl_standard_error"] is None
        assert fine["kl_true"] <= 2 * max(coarse["kl_true"], reference["kl_true"])  # both may be as good as FP64
        # The paper's measure is a signed sum, as is a difference of log-likelihoods: small, but one may cancel by chance.
        assert 0.0 < abs(fine["kl_paper"]) < 1e-5 and 0.0 < abs(coarse["kl_paper"]) < 1e-3
        assert 0.0 < abs(fine["log_likelihood_error"]) < 1e-4 and 0.0 < abs(coarse["log_likelihood_error"]) < 1e-2
        assert reference["measured_error"] < fine["measured_error"] <= fine["certified_bound"]
        assert coarse["measured_error"] <= coarse["certified_bound"]
    table = capsys.readouterr().out.splitlines()
    heading = next(line for line in table if "KL, true" in line)
    assert all(name in heading for name in ("correlation", "threshold", "log-likelihood", "certified"))
    assert sum(line.split()[1:4] == ["8/9", "strong", "1e-5"] for line in table if len(line.split()) > 4) == 1


def test_above_the_exact_order_the_divergence_is_sampled_and_above_the_dense_one_left_out(tmp_path, monkeypatch, capsys):
    words = ("--n", "512", "--tile-size", "64", "--ranges", "0.05", "--thresholds", "1e-5")
    exact = bench(tmp_path, "paper-kl", *words, "--nu", "1/2")[1]["runs"][1]
    monkeypatch.setattr(paper_kl, "EXACT_ORDER", 256)
    sampled = bench(tmp_path, "paper-kl", *words, "--nu", "1/2")[1]["runs"][1]
    assert sampled["kl_method"].startswith("Lanczos") and sampled["measured_error"] is None
    assert abs(sampled["kl_true"] - exact["kl_true"]) <= 5 * sampled["kl_standard_error"] < exact["kl_true"]
    assert "+-" in capsys.readouterr().out
    monkeypatch.setattr(paper, "DENSE_ORDER", 256)
    left_out = bench(tmp_path, "paper-kl", *words, "--nu", "1/2")[1]["runs"][1]
    assert left_out["kl_true"] is None and left_out["kl_method"].startswith("left out")
    assert left_out["source"] == "device-function"
    assert left_out["kl_paper"] == pytest.approx(exact["kl_paper"], rel=1e-3)


def test_mxp_compares_with_fp64_and_records_traces(tmp_path, capsys):
    words = ("--n", "512", "--tile-size", "64", "--thresholds", "1e-5", "1e-8", "--repeats", "2", "--memory-budget", "400 kB")
    status, content = bench(tmp_path, "paper-mxp", *words, "--ranges", "weak", "--traces", str(tmp_path / "traces"))
    assert status == 0
    fp64, coarse, fine = content["runs"]
    for run in content["runs"]:
        check_run(run)
        assert run["budget_bytes"] == 400_000 and len(run["seconds"]) == 2
    assert fp64["residual"]["max_scaled_over_sqrt_n"] <= 4.0
    assert abs(coarse["logdet_error"]) > abs(fine["logdet_error"]) > 0.0
    assert coarse["logdet_error"] == coarse["logdet"] - fp64["logdet"]
    moved = [run["bytes"]["executed"]["write"] for run in (coarse, fine, fp64)]
    assert moved == sorted(moved) and coarse["formats"]["fp8"] > 0
    names = {path.name for path in (tmp_path / "traces").iterdir()}
    assert names == {f"small-512-nu1_2-weak-planned-{formats}.pftrace" for formats in ("fp64", "1e-5", "1e-8")}
    assert "GH200, threshold 1e-5, weak correlation 136.1 TFLOP/s" in capsys.readouterr().out


def test_mxp_runs_fp64_once_where_it_is_there_for_log_determinants(tmp_path):
    words = ("--n", "256", "--tile-size", "32", "--thresholds", "1e-6", "--ranges", "0.1", "--repeats", "2", "--fp64-once")
    fp64, mixed = bench(tmp_path, "paper-mxp", *words)[1]["runs"]
    assert (len(fp64["seconds"]), len(mixed["seconds"])) == (1, 2)
    assert mixed["logdet_error"] == mixed["logdet"] - fp64["logdet"]


def test_mxp_without_fp64_and_with_warm_up(tmp_path):
    words = ["paper-mxp", "--devices", "host:0", "--name", "small", "--output", str(tmp_path), "--n", "256"]
    words += ["--tile-size", "32", "--thresholds", "1e-6", "--fp64", "none", "--ranges", "0.1", "--repeats", "1"]
    assert main(words) == 0
    (run,) = json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))["runs"]
    assert run["correlation"] == "0.1" and "logdet_error" not in run


def test_a_configuration_that_fails_costs_only_itself(tmp_path, capsys):
    words = ("--tile-size", "64", "--n", "200", "32", "--memory-budget", "90 kB", "--nu", "1/2")
    for what in ("paper-ablation", "paper-kl", "paper-mxp"):
        status, content = bench(tmp_path, what, *words)
        assert status == 1
        runs = {n: [run for run in content["runs"] if run["n"] == n] for n in (200, 32)}
        assert runs[200] and all(run["error"].startswith("BudgetError") for run in runs[200])
        assert runs[32] and all("error" not in run for run in runs[32])
        table = capsys.readouterr().out.split("written to")[0]
        assert "BudgetError" in table and "at least 98304 are needed" in table


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["paper-ablation", "--devices", "host:0,host:1"], "compares policies on one device"),
        (["paper-kl", "--n", "0"], "at least 1"),
        (["paper-mxp", "--ranges", "-1"], "must be positive"),
    ],
)
def test_what_makes_no_sense_is_refused(words, told, tmp_path, capsys):
    assert main([*words, "--output", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err


def test_a_row_with_an_error_widens_no_column():
    table = paper_tables._aligned(("a", "b"), [("1", "2"), ("an error of many words",)])
    assert table.splitlines()[0] == "a  b"


# measures of the likelihood


def dense(n=300, correlation_range=0.2) -> np.ndarray:
    """A covariance, all of it."""
    problem = CovarianceProblem(n, correlation_range)
    return problem.block(slice(0, n), slice(0, n))


def test_exact_divergence_is_that_of_the_definition():
    a = dense()
    root = np.linalg.cholesky(a + 0.01 * np.eye(len(a)))
    m = root @ root.T
    defined = 0.5 * (np.trace(np.linalg.solve(m, a)) - len(a) + np.linalg.slogdet(m)[1] - np.linalg.slogdet(a)[1])
    lower = np.where(np.tri(len(a), dtype=bool), a, np.nan)
    assert exact_kl(lower, root) == pytest.approx(defined, rel=1e-9)
    assert measured_error(lower, root) == pytest.approx(np.linalg.norm(a - m) / np.linalg.norm(a), rel=1e-9)
    eigenvalues = scipy.linalg.eigh(a, m, eigvals_only=True)
    assert exact_kl(lower, root) == pytest.approx(0.5 * np.sum(eigenvalues - 1 - np.log(eigenvalues)), rel=1e-7)


def test_divergence_from_what_is_not_positive_definite_is_infinite():
    assert exact_kl(-np.eye(4), np.eye(4)) == math.inf


def test_small_divergences_keep_their_digits():
    """``(tr E - logdet(I + E)) / 2`` is near ``||E||_F**2 / 4``, here 1e-9: log-determinants apart would keep little."""
    rng, n = np.random.default_rng(3), 400
    e = rng.standard_normal((n, n)) * 1e-7
    e = e + e.T
    root = np.tril(rng.standard_normal((n, n))) / n + np.diag(np.linspace(1.0, 3.0, n))
    a = root @ (np.eye(n) + e) @ root.T
    assert exact_kl(a, root) == pytest.approx(np.sum(e**2) / 4, rel=1e-3)


@pytest.mark.parametrize("threshold", [1e-4, 1e-6])
def test_sampled_divergence_meets_the_exact_one(threshold):
    a = dense(512, 0.05)
    with oc.cholesky(a, precision_threshold=threshold, tile_size=64, devices="host:0") as factor:
        exact, sample = exact_kl(a, np.asarray(factor)), sampled_kl(lambda v: a @ v, factor)
        assert abs(sample.value - exact) <= 5 * sample.standard_error
        assert sample.standard_error <= 0.3 * exact
        again = sampled_kl(lambda v: a @ v, factor)
    assert sample == again


def test_sampled_divergence_of_a_space_that_is_exhausted():
    """As many steps as rows, and an E of rank one."""
    a = np.diag([1.0, 1.0, 1.0, 2.0])
    with oc.cholesky(np.eye(4), devices="host:0") as factor:
        sample = sampled_kl(lambda v: a @ v, factor, probes=64)
    assert sample.value == pytest.approx(0.5 * (1.0 - math.log(2.0)), rel=1e-12)
    assert sample.standard_error == pytest.approx(0.0, abs=1e-12)


def test_the_papers_measure_is_the_difference_of_likelihoods_at_zero():
    a, b = dense(200), dense(200, 0.1)
    zero = np.zeros(200)
    with oc.cholesky(a, devices="host:0") as exact, oc.cholesky(b, devices="host:0") as other:
        difference = log_likelihood(exact, zero) - log_likelihood(other, zero)
        assert paper_measure(exact.logdet(), other.logdet()) == pytest.approx(difference, rel=1e-9)
        y = exact.matmul(np.random.default_rng(0).standard_normal(200))
        density = -0.5 * (200 * math.log(2 * math.pi) + np.linalg.slogdet(b)[1] + y @ np.linalg.solve(b, y))
        assert log_likelihood(other, y) == pytest.approx(density, rel=1e-9)
        found = KlReference.of(exact, a).compare(other)
        assert found["log_likelihood"] == pytest.approx(density, rel=1e-9)
        assert found["log_likelihood_error"] == pytest.approx(density - log_likelihood(exact, y), rel=1e-9)


# files and documents


@pytest.mark.parametrize("path", sorted(FILES.glob("*.json")), ids=lambda path: path.stem)
def test_files_are_whole(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["case"] == path.stem and re.fullmatch("[0-9a-f]{40}", content["commit"])
    assert {"date", "machine", "devices", "figures", "warm_up"} <= set(content)
    for run in content["runs"]:
        check_run(run)
        if run.get("measured_error") and run["certified_bound"]:
            assert run["measured_error"] <= run["certified_bound"]


def test_the_document_shows_the_files():
    pages = ("measurements.md", "mixed-precision.md")
    text = "".join((FILES.parents[2] / "docs" / page).read_text(encoding="utf-8") for page in pages)
    for name in paper_tables.DOCUMENTED:
        place = f"<!-- {name} -->\n{paper_tables.documented(name, FILES)}\n<!-- /{name} -->"
        assert place in text, "run: python -m benchmarks table --update docs/measurements.md"


# the covariance


def places() -> np.ndarray:
    """Distances over the range, of every size, and the ends of the table."""
    rng = np.random.default_rng(0)
    small = np.exp(rng.uniform(np.log(1e-12), np.log(300.0), 20000))
    return np.concatenate([small, rng.uniform(0.0, 60.0, 20000), [0.0, 1e-300, 1.0, 2.0 - 2**-52, 2.0, 256.0, 1e4]])


@pytest.mark.parametrize("nu", [0.25, 0.5, 8 / 9, 1.5, 2.5, 5.0])
def test_the_table_is_the_covariance(nu):
    x = places()
    assert np.abs(MaternTable(nu)(x) - matern(x, nu)).max() <= TABLE_ERROR


def test_the_covariance_has_its_closed_forms():
    x = places()
    assert np.abs(matern(x, 0.5) - np.exp(-x)).max() <= TABLE_ERROR
    assert np.abs(matern(x, 1.5) - (1 + x) * np.exp(-x)).max() <= TABLE_ERROR
    assert np.abs(matern(x, 2.5) - (1 + x + x**2 / 3) * np.exp(-x)).max() <= TABLE_ERROR


def test_other_smoothness_keeps_the_points_and_changes_the_name():
    exponential, other = CovarianceProblem(64, 0.2), CovarianceProblem(64, 0.2, smoothness=8 / 9)
    assert np.array_equal(exponential.points, other.points)
    assert exponential.name.startswith("exponential, range 0.2") and other.name.startswith("Matern nu 8/9, range 0.2")
    a = other.block(slice(0, 64), slice(0, 64))
    distances = np.hypot(*(np.subtract.outer(x, x) for x in other.points.T))
    assert np.abs(a - matern(distances / 0.2, 8 / 9) - 1e-6 * np.eye(64)).max() <= TABLE_ERROR
    assert np.linalg.eigvalsh(a).min() > 0.0


#: What C++ needs to run the kernels as one thread of the host.
ON_THE_HOST = """
#include <cmath>
#include <cstring>
#define __global__
struct Place { int x, y; };
static Place blockIdx, threadIdx;
static const Place blockDim = {1, 1};
struct double2 { double x, y; };
template <class T> static T __ldg(const T* at) { return *at; }
static long long __double_as_longlong(double x) { long long bits; std::memcpy(&bits, &x, 8); return bits; }
extern "C" void choose(int x, int y) { blockIdx = {x, y}; }
"""


@pytest.mark.nvcc
@pytest.mark.parametrize("nu", [0.5, 8 / 9])
@pytest.mark.usefixtures("compilers")
def test_the_cuda_kernel_computes_the_tiles_of_the_host(nu, tmp_path):
    (tmp_path / "kernel.cpp").write_text(ON_THE_HOST + CUDA_CODE, encoding="utf-8")
    words = ["nvcc", "-std=c++17", "-O1", "-shared", "-Xcompiler", "-fPIC", "-o", str(tmp_path / "out.so"), "kernel.cpp"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    library = ctypes.CDLL(str(tmp_path / "out.so"))
    problem = CovarianceProblem(200, 0.078809, smoothness=nu)
    function = problem.cuda_tile()
    rows, cols, out = range(100, 130), range(90, 140), np.empty((30, 50))
    fixed = [out.ctypes.data_as(ctypes.c_void_p), *map(ctypes.c_int, out.shape), *map(ctypes.c_longlong, (100, 90))]
    kinds = {np.dtype(np.float64): ctypes.c_double, np.dtype(np.int64): ctypes.c_longlong}
    given = [
        value.ctypes.data_as(ctypes.c_void_p) if isinstance(value, np.ndarray) else kinds[value.dtype](value.item())
        for value in function.arguments
    ]
    for r in range(30):
        for c in range(50):
            library.choose(c, r)
            getattr(library, function.name)(*fixed, *given)
    expected = np.empty_like(out)
    problem.host_tile(rows, cols, expected)
    assert np.abs(out - expected).max() <= TABLE_ERROR
