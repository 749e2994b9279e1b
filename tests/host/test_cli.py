"""The command line: plan, factor, devices, bench; every mistake is one line on the error stream and exit status 2."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.matrices import FAMILIES
from tests.host.runs import COMMAND, ENVIRONMENT
from tests.inside.cli import main
from tests.inside.dense import measuring
from tests.inside.ground import long_time
from tests.inside.kernels import blas_identity
from tests.option_words import SHELL_WORDS, WORDS
from tests.plan.perfetto_files import read

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 300, 64
A = FAMILIES["matern15 nugget 1e-6"](N)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, with the matrix in it."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", A)
    return tmp_path


def run(capsys, *words) -> tuple[int, str, str]:
    """Exit status, output and error output of ``ooc-chol words...``, in this process."""
    capsys.readouterr()
    try:
        status = main([str(word) for word in words])
    except SystemExit as ended:  # argparse's way of refusing, and of --help
        status = int(ended.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# all commands


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["facter", "a.npy"], "did you mean factor?"),
        (["geostat", "fitt", "a.csv"], "did you mean fit?"),
        (["--verison"], "unrecognized arguments: --verison; did you mean --version?"),
        (
            ["factor", "a.npy", "--store", "x", "--tilesize", "64"],
            "unrecognized arguments: --tilesize 64; did you mean --tile-size?",
        ),
        (["spectral", "partition", "a.npy", "2", "--balence=0.1"], "did you mean --balance?"),
        (["sparse", "multiply", "a.npy", "--qqq"], "unrecognized arguments: --qqq\n"),
        (["eigsh", "nothing.npz"], "there is no file 'nothing.npz'"),
        (["eigsh", "nowhere/nothing.npz"], "there is no file 'nowhere/nothing.npz', and no folder 'nowhere'"),
        (["factor", "nothing.npy", "--store", "x"], "there is no file 'nothing.npy'"),
        (["geostat", "fit", "nothing.csv"], "there is no file 'nothing.csv'"),
        (["spectral", "partition", "nothing.graph", "2"], "there is no file 'nothing.graph'"),
    ],
)
def test_a_word_that_is_not_known_is_answered_with_the_nearest(folder, capsys, words, message):
    status, _, said = run(capsys, *words)
    assert status == 2 and message in said


@pytest.mark.parametrize("words", [(), ("factor",), ("geostat", "fit")])
def test_help_is_a_command(capsys, words):
    asked, by_option = run(capsys, "help", *words), run(capsys, *words, "--help")
    assert asked == by_option and asked[0] == 0 and "usage: ooc-chol" in asked[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plann",), "did you mean plan?"),
        (("geostat", "fitt"), "did you mean fit?"),
        (("plan", "extra"), "ooc-chol plan: error: there is no command 'extra' within it"),
        (("plan", "--json", "--quiet"), "--json"),
        (("geostat", "fit", "extra", "words"), "ooc-chol geostat fit: error: there is no command 'extra' within it"),
    ],
)
def test_help_of_no_command_is_refused(capsys, words, message):
    status, told, said = run(capsys, "help", *words)
    assert status == 2 and message in said and not told


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (299, ""), (300, " (5 minutes)"), (7199, " (120 minutes)"), (7200, " (2 hours)"), (172800, " (2 days)"),
        (1.16e7, " (134 days)"), (1e9, " (11,574 days)"),
    ],
)  # fmt: skip
def test_long_times_are_in_units_that_people_use(seconds, text):
    assert long_time(seconds) == text


#: Prints which modules of a list a command has imported; the command's own output goes nowhere.
IMPORTED = """
import contextlib, io, sys
from tests.inside.cli import main
words, names = sys.argv[1].split(), sys.argv[2:]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(words)
print(*[name for name in names if name in sys.modules])
"""
#: What takes long to import, and belongs to benchmarks, applications or traces.
HEAVY = ["ooc_chol.bench", "ooc_chol.apps", "scipy.optimize", "perfetto", "google.protobuf", "matplotlib", "pandas"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--help", ""),
        ("plan --n 90", ""),
        ("factor a.npy --store L.ooc --quiet", ""),
        ("devices", ""),
        ("sparse make urand --scale 4 --output g.oocsr --quiet", ""),
        ("sparse --help", ""),
        ("trace view --help", ""),
        ("bench --help", "ooc_chol.bench"),
        ("geostat --help", "ooc_chol.apps"),
        ("spectral --help", "ooc_chol.apps"),
        ("impute --help", "ooc_chol.apps"),
    ],
)
@pytest.mark.usefixtures("processes")
def test_a_command_imports_what_it_needs(folder, words, expected):
    command = [COMMAND[0], "-c", IMPORTED, words, *HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert (done.stdout.split(), done.stderr) == (expected.split(), "")


@pytest.mark.parametrize(
    "words", [["--help"], ["plan", "--n", "3000", "--tile-size", "256", "--memory-budget", "9 MiB"], ["paln"], []]
)
@pytest.mark.usefixtures("processes")
def test_the_package_as_a_module_is_the_command(words, tmp_path):
    own, module = (
        subprocess.run([*command, *words], capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT)
        for command in (COMMAND, [COMMAND[0], "-m", "ooc_chol"])
    )
    assert (own.returncode, own.stdout, own.stderr) == (module.returncode, module.stdout, module.stderr)
    assert "ooc-chol" in own.stdout + own.stderr or "Plan" in own.stdout


@pytest.mark.parametrize("name", SHELL_WORDS)
@pytest.mark.parametrize(("command", "call"), [(["plan", "--n", "9"], "plan"), (["factor", "a.npy", "--store", "L"], "cholesky")])
def test_every_option_reaches_the_call(capsys, folder, monkeypatch, command, call, name):
    taken = []

    def take(*_, **given):
        taken.append({option: given[option] for option in WORDS})
        raise ValueError("taken")

    monkeypatch.setattr(oc, call, take)
    words, value = WORDS[name]
    assert run(capsys, *command, *words) == (2, "", "ooc-chol: taken\n")
    assert taken == [{**oc.FactorOptions().keywords(), name: value}]


# plan


def test_plan_prints_what_plan_returns(capsys):
    words = ("--n", 3000, "--tile-size", 256, "--memory-budget", "20 MB")
    status, out, err = run(capsys, "plan", *words)
    assert (status, err) == (0, "")
    assert out == f"{oc.plan(3000, tile_size=256, memory_budget='20 MB')}\n"


def test_plan_takes_every_option(capsys, folder):
    words = [
        "--matrix",
        "a.npy",
        "--tile-size",
        64,
        "--memory-budget",
        "200 kB",
        "--devices",
        "host:1,host:0",
        "--policy",
        "sync",
    ]
    status, out, _ = run(capsys, "plan", *words, "--objective", "bytes", "--store", "L.ooc", "--json")
    assert status == 0
    plan = oc.plan(
        "a.npy",
        tile_size=64,
        memory_budget="200 kB",
        devices=["host:1", "host:0"],
        policy="sync",
        objective="bytes",
        store="L.ooc",
    )
    assert json.loads(out) == json.loads(json.dumps(plan.to_dict()))
    assert os.listdir(folder) == ["a.npy"], "a plan creates nothing"


def test_a_count_of_devices(capsys):
    _, out, _ = run(capsys, "plan", "--n", 3000, "--devices", 3, "--json")
    assert json.loads(out)["devices"] == ["host:0", "host:1", "host:2"]


def cpu_seconds_of_children() -> float:
    """Processor time of all processes that this one has started and waited for: what a busy machine does not lengthen."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.usefixtures("processes")
def test_the_page_of_a_large_plan_comes_within_ten_seconds(tmp_path):
    began = cpu_seconds_of_children()
    command = [*COMMAND, "plan", "--n", "160000", "--memory-budget", "80 GB"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=ENVIRONMENT)
    assert cpu_seconds_of_children() - began < 10
    for words in ("n = 160000", "80 GB", "read once and written once: 207 GB", "peak", "flops"):
        assert words in done.stdout
    assert done.stderr == ""


# factor


def test_factor_a_file(capsys, folder):
    status, out, _ = run(capsys, "factor", "a.npy", "--store", "L.ooc", "--tile-size", NB, "--memory-budget", "200 kB")
    assert status == 0
    expected = oc.cholesky(A, tile_size=NB)
    with oc.load("L.ooc") as factor:
        assert np.array_equal(np.asarray(factor), np.asarray(expected))
        assert f"logdet     {factor.logdet():.15g}" in out
    assert "n = 300 in tiles of 64" in out and "planned" in out and "ooc_chol.load" in out
    assert sorted(os.listdir(folder)) == ["L.ooc", "a.npy"]


def test_factor_with_everything(capsys, folder):
    words = ["--tile-size", NB, "--memory-budget", "200 kB", "--devices", 2, "--policy", "planned", "--objective", "seconds"]
    outputs = ["--check", "--trace", "run.pftrace", "--report", "report.json"]
    status, out, err = run(capsys, "factor", "a.npy", "--store", "L.ooc", *words, *outputs)
    assert status == 0
    assert "\r" not in err, "a bar, where no terminal shows it"
    residual = re.search(r"max \|R_ij\| = (\S+) sqrt\(n\) u", out)
    assert residual and 0 < float(residual[1]) <= 4
    assert "waiting on whom" in out and "ui.perfetto.dev" in out
    figures = json.loads((folder / "report.json").read_text())
    assert figures["n"] == N and figures["devices"] == ["host:0", "host:1"]
    assert figures["bytes"]["planned"] == figures["bytes"]["executed"]
    assert read(folder / "run.pftrace").groups == ["host:0 measured", "host:1 measured"]


def test_factor_a_float32_file_in_column_order(capsys, folder):
    np.save("f.npy", np.asfortranarray(A.astype(np.float32)))
    status, out, _ = run(capsys, "factor", "f.npy", "--store", "L.ooc", "--check")
    assert status == 0 and "residual" in out


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_the_installed_command_works_in_a_process_of_its_own(folder):
    words = ["factor", "a.npy", "--store", "L.ooc", "--check"]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert "residual" in done.stdout
    done = subprocess.run([*COMMAND, *words, "--quiet"], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert (done.stdout, done.stderr) == ("", "")
    failed = subprocess.run([*COMMAND, "factor", "b.npy", "--store", "M.ooc"], capture_output=True, text=True, env=ENVIRONMENT)
    assert failed.returncode == 2 and failed.stdout == "" and "Traceback" not in failed.stderr
    assert sorted(os.listdir(folder)) == ["L.ooc", "a.npy"]


@pytest.mark.parametrize("words", [("--report", "no/r.json"), ("--trace", "no/r.pftrace")])
def test_outputs_of_factor_are_looked_at_before_the_run(capsys, folder, monkeypatch, words):
    monkeypatch.setattr(oc, "cholesky", lambda *_, **__: pytest.fail("factored for nothing"))
    status, _, err = run(capsys, "factor", "a.npy", "--store", "L.ooc", "--quiet", *words)
    name = words[1].removeprefix("no/")
    told = f"ooc-chol: {words[0]}: {words[1]}: there is no folder no to write {name} into; make it, or give another name\n"
    assert (status, err) == (2, told)


def test_a_check_that_fails_leaves_report_and_trace(capsys, folder, monkeypatch):
    def fail(*_, **__):
        raise oc.errors.TierError("a.npy: it was written while it was read")

    monkeypatch.setattr(oc.CholeskyFactor, "residual", fail)
    words = ["factor", "a.npy", "--store", "L.ooc", "--quiet", "--check", "--report", "r.json", "--trace", "r.pftrace"]
    status, out, err = run(capsys, *words)
    assert (status, err) == (2, "ooc-chol: a.npy: it was written while it was read\n") and out == ""
    assert sorted(os.listdir(folder)) == ["L.ooc", "a.npy", "r.json", "r.pftrace"]


def test_the_picture_of_a_plan_is_an_svg_file(capsys, folder):
    words = ["plan", "--matrix", "a.npy", "--precision-threshold", "1e-3"]
    status, _, err = run(capsys, *words, "--picture", "map.png")
    assert status == 2 and ".svg" in err and os.listdir(folder) == ["a.npy"]
    assert run(capsys, *words, "--picture", "map.svg")[0] == 0
    assert re.search(r"order [\d,]+, tiles of [\d,]+.*threshold 0.001", Path("map.svg").read_text(), re.DOTALL)


# devices, bench


def test_devices_lists_them(capsys):
    status, out, err = run(capsys, "devices")
    assert (status, err) == (0, "")
    assert "host:0" in out and blas_identity()["version"] in out and "GB" in out


def test_bench_rates_measures_and_stores(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path))
    monkeypatch.setattr(measuring, "MEASURE_SECONDS", 0.002)
    status, out, err = run(capsys, "bench", "rates", "--tile-size", 32, 64)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    of_tiles = [line for line in lines if line.startswith("tiles of")]
    assert [line.split(":")[0] for line in of_tiles] == ["tiles of 32", "tiles of 64"]
    assert "GFLOP/s" in of_tiles[0] and "GB/s" in of_tiles[0]
    assert lines[-1] == f"stored in {tmp_path / 'rates.json'}"
    _, page, _ = run(capsys, "plan", "--n", 320, "--tile-size", 64)
    assert "predicted" in page


# mistakes


def spoiled(value, row=211, col=70):
    """The matrix with one entry changed."""
    a = A.copy()
    a[row, col] = value
    return a


MISTAKES = {
    "no such file": (["factor", "none.npy", "--store", "L.ooc"], "none.npy"),
    "no .npy file": (["factor", "a.csv", "--store", "L.ooc"], r"does not end in \.npy"),
    "damaged file": (["factor", "damaged.npy", "--store", "L.ooc"], r"not a complete \.npy file"),
    "not square": (["factor", "wide.npy", "--store", "L.ooc"], "square matrix"),
    "complex numbers": (["factor", "complex.npy", "--store", "L.ooc", "--precision-threshold", "1e-6"], "complex128"),
    "not finite": (["factor", "nan.npy", "--store", "L.ooc", "--quiet"], r"A\[211, 70\].*mend the entry"),
    "not positive definite": (["factor", "negative.npy", "--store", "L.ooc", "--quiet"], "minor of order 212 .*nugget"),
    "store in no folder": (["factor", "a.npy", "--store", "no/L.ooc", "--quiet"], "no folder no to write L.ooc into"),
    "report in no folder": (["factor", "a.npy", "--store", "L.ooc", "--quiet", "--report", "no/r.json"], "no/r.json"),
    "trace in no folder": (["factor", "a.npy", "--store", "L.ooc", "--quiet", "--trace", "no/r.pftrace"], "no/r.pftrace"),
    "budget too small": (
        ["factor", "a.npy", "--store", "L.ooc", "--memory-budget", "1 kB", "--tile-size", "64"],
        "98304 are needed",
    ),
    "budget without sense": (["plan", "--n", "9", "--memory-budget", "much"], "write for example"),
    "order zero": (["plan", "--n", "0"], "at least 1 row"),
    "tile size zero": (["plan", "--n", "9", "--tile-size", "0"], "at least 1 row"),
    "unknown policy": (["plan", "--n", "9", "--policy", "best"], "policy is 'best'; there are"),
    "unknown device": (["plan", "--n", "9", "--devices", "tpu:0"], "no device 'tpu:0'; there are"),
    "unknown objective": (["plan", "--n", "9", "--objective", "joules"], "there are 'seconds' and 'bytes'"),
    "plan of nothing": (["plan", "--matrix", "none.npy"], "none.npy"),
    "rates of tile size zero": (["bench", "rates", "--tile-size", "0"], "at least 1 row"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_and_exit_status_2(capsys, folder, kind):
    np.save("wide.npy", np.zeros((3, 4)))
    np.save("complex.npy", np.eye(3, dtype=complex))
    np.save("nan.npy", spoiled(np.nan))
    np.save("negative.npy", spoiled(-1.0, 211, 211))
    (folder / "damaged.npy").write_bytes(b"\x93NUMPY")
    before = sorted(os.listdir(folder))
    words, text = MISTAKES[kind]
    status, out, err = run(capsys, *words)
    assert status == 2
    assert err.startswith("ooc-chol: ") and err.count("\n") == 1, err
    assert re.search(text, err), err
    assert sorted(os.listdir(folder)) == before
    assert out == ""


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["factor"],
        ["factor", "a.npy"],
        ["plan"],
        ["plan", "--n", "many"],
        ["plan", "--n", "9", "--matrix", "a.npy"],
        ["paln"],
        ["bench"],
        ["devices", "--n", "9"],
    ],
)
def test_words_that_are_no_command_show_the_usage(capsys, words):
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("usage: ooc-chol") and "error:" in err


@pytest.mark.parametrize(
    "words", [["--help"], ["plan", "--help"], ["factor", "--help"], ["devices", "--help"], ["bench", "rates", "--help"]]
)
def test_help_is_there(capsys, words):
    status, out, err = run(capsys, *words)
    assert (status, err) == (0, "") and out.startswith("usage: ooc-chol")


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"ooc_chol {oc.__version__}\n", "")


def test_a_fault_of_ours_is_not_hidden(monkeypatch, capsys):
    def plan(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(oc, "plan", plan)
    with pytest.raises(ZeroDivisionError):
        main(["plan", "--n", "9"])


def test_interrupted_is_130(monkeypatch, capsys):
    def plan(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(oc, "plan", plan)
    assert run(capsys, "plan", "--n", 9) == (130, "", "ooc-chol: interrupted\n")


def test_a_threshold_is_a_contract_unless_it_is_waived(tmp_path, capsys):
    steps = np.arange(1.0, 513.0)
    np.save(tmp_path / "a.npy", 0.3889320525912019 * np.minimum.outer(steps, steps))
    words = ["factor", str(tmp_path / "a.npy"), "--precision-threshold", "1e-4", "--tile-size", "64"]
    words += ["--store", str(tmp_path / "L")]
    assert main(words) == 0
    assert "certified  error at most" in capsys.readouterr().out
    words.append("--quiet")
    assert main([*words[:3], "1e-15", *words[4:]]) == 2
    assert "--no-strict" in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main([*words[:3], "1e-15", *words[4:], "--no-strict"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("ooc-chol: warning: the error is only certified") and err.count("\n") == 1
