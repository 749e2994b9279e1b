"""``ooc-chol bench`` on the host device: one case, a suite, peers that are there and peers that are not."""

from __future__ import annotations

import json

import pytest

from tests.inside.bench import CovarianceProblem, Fp64Case, Peer, fp64, peers, suites
from tests.inside.cli import main
from tests.inside.dense import measuring
from tests.plan.result_fields import ENGINE_FIELDS, FIELDS
from tests.tolerances import FACTOR_ENTRY_C

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

SIZES = ("--n", "512", "--tile-size", "64", "--memory-budget", "300 kB", "--devices", "host:0")


def bench(tmp_path, *words) -> tuple[int, dict]:
    """Exit status of ``bench fp64`` and what it wrote."""
    shared = ["--case", "small", *SIZES, "--dgemm-seconds", "0.01", "--output", str(tmp_path)]
    status = main(["bench", "fp64", *shared, *words])
    return status, json.loads((tmp_path / "small.json").read_text(encoding="utf-8"))


def test_a_case_on_the_host_writes_a_whole_result(tmp_path, capsys):
    trace = tmp_path / "small.pftrace"
    status, result = bench(tmp_path, "--repeats", "2", "--peers", "scipy:256", "--trace", str(trace))
    assert status == 0
    assert FIELDS | ENGINE_FIELDS["native"] | {"residual", "dgemm_tflops"} <= set(result)
    assert result["case"] == "small" and result["engine"] == "native" and result["out_of_core"]
    assert len(result["seconds"]) == len(result["wall_seconds"]) == 2
    parts = zip(result["wall_seconds"], result["setup_seconds"], result["seconds"], strict=True)
    assert all(wall > setup + inside for wall, setup, inside in parts), "measured around the call, not the report's"
    assert result["bytes"]["planned"] == result["bytes"]["executed"]
    assert result["residual"]["max_scaled_over_sqrt_n"] <= FACTOR_ENTRY_C
    assert [peer["name"] for peer in result["peers"]] == ["SciPy dpotrf"]
    assert result["peers"][0]["tflops"] == pytest.approx(256**3 / 3e12 / min(result["peers"][0]["seconds"]))
    assert trace.stat().st_size > 0
    out = capsys.readouterr().out
    assert out.count("not counted") == 1 and "DGEMM" in out and "SciPy dpotrf n = 256 on host:0" in out


def test_the_factor_of_a_host_array_is_that_of_the_function(tmp_path):
    _, function = bench(tmp_path, "--repeats", "1", "--no-warm-up")
    _, array = bench(tmp_path, "--repeats", "1", "--no-warm-up", "--source", "host-array")
    assert array["source"] == "host-array" and array["bytes"]["executed"]["source"] > 0
    assert array["logdet"] == function["logdet"]


def test_rates_that_are_measured_first_predict_seconds(tmp_path, monkeypatch):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring, "MEASURE_SECONDS", 0.002)
    assert bench(tmp_path, "--repeats", "1")[1]["predicted_seconds"] is None
    assert bench(tmp_path, "--repeats", "1", "--rates")[1]["predicted_seconds"] > 0


def test_a_peer_that_fails_is_recorded(capsys, monkeypatch):
    def absent(problem, devices):
        raise OSError(f"no library for order {problem.n} on {', '.join(devices)}")

    monkeypatch.setitem(peers._MEASURES, "cusolvermg", absent)
    found = peers.measure_peer(Peer("cusolvermg", 64), CovarianceProblem(128), ["cuda:0", "cuda:1"])
    error = "OSError: no library for order 64 on cuda:0, cuda:1"
    assert found == {"name": "cuSOLVERMg potrf", "n": 64, "devices": ["cuda:0", "cuda:1"], "error": error}
    assert error in capsys.readouterr().out


def test_scipy_factors_the_same_covariance():
    """Its order is the peer's, its covariance the case's: a nugget that makes it indefinite is refused by LAPACK, and said."""
    found = peers.measure_peer(Peer("scipy", 64), CovarianceProblem(128, nugget=-0.9), ["host:0"])
    assert found["error"].startswith("NotPositiveDefiniteError: the leading minor of order")


def small(name: str, **changes) -> Fp64Case:
    """A case for a suite."""
    figures = {"n": 256, "tile_size": 64, "budget": "200 kB", "devices": ("host:0",), "repeats": 1, "dgemm_seconds": 0.01}
    return Fp64Case(name, **(figures | changes))


def test_a_suite_writes_what_it_can_and_says_what_it_could_not(tmp_path, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(fp64, "measure_peer", lambda peer, problem, devices: asked.append(peer) or {"name": "p", "n": peer.n})
    shared = (Peer("scipy", 128),)
    cases = (small("host-1", peers=shared), small("host-2", devices=("cuda:7",)), small("host-3", peers=shared))
    monkeypatch.setitem(suites.SUITES, "host", cases)
    status = main(["bench", "suite", "host", "--output", str(tmp_path), "--no-rates", "--traces", str(tmp_path / "traces")])
    assert status == 1
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["host-1.json", "host-3.json"]
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == ["host-1.pftrace", "host-3.pftrace"]
    assert len(asked) == 1, "a peer is measured once in a process"
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert [line.split()[0] for line in lines] == ["case", "host-1", "host-2", "host-3"]
    assert "no device 'cuda:7'" in lines[2]


def test_emulation_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUBLAS_EMULATE_DOUBLE_PRECISION", "1")
    assert main(["bench", "fp64", "--case", "small", *SIZES, "--output", str(tmp_path)]) == 2
    assert "CUBLAS_EMULATE_DOUBLE_PRECISION would switch emulation on" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
