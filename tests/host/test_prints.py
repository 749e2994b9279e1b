"""Every public object of ooc_chol is one line for ``repr``, a page for ``str``, and a small picture in notebooks."""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.toolbox import one_line
from tests.host.escalation_cases import TWO_ROWS
from tests.host.matrices import random_spd
from tests.inside.cli import main
from tests.inside.cluster import ClusterRates, WorkerRates, plan_cluster
from tests.inside.dense import KINDS, Execution, Problem, fresh_plan, seconds_by_kind
from tests.inside.ground import Bar, brief, draw_bars, shortened
from tests.inside.precision import FP64, Escalation, Escalations, Remedy
from tests.inside.tasks import StepKind, TileGrid
from tests.inside.tracing import LazySequence
from tests.plan.rates import UNIT_RATES
from tests.prints import HOSTILE, LONGEST_LINE, check_html, check_prints, classes_of, parts_of
from tests.public import public_names

N = 96


def exponential(n):
    x = np.linspace(0.0, 1.0, n)
    return np.exp(-np.abs(x[:, None] - x) / 0.1) + 0.01 * np.eye(n)


@pytest.fixture(scope="module")
def factors(tmp_path_factory):
    """Factors of every kind, closed ones too."""
    path = tmp_path_factory.mktemp("factors") / f"{'long' * 40} & <b>.ooc"
    made = {
        "native": oc.cholesky(exponential(N), tile_size=16, memory_budget="32 KiB", trace=True),
        "whole": oc.cholesky(exponential(N)),
        "mixed": oc.cholesky(exponential(N), precision_threshold=1e-4, tile_size=16, trace=True),
        "escalated": TWO_ROWS.factor(),
        "complex": oc.cholesky(exponential(N), dtype="complex64", tile_size=32, trace=True),
        "residue": oc.cholesky(exponential(N), tile_size=32, fp64="residue"),
        "several": oc.cholesky(exponential(N), tile_size=8, devices=[f"host:{at}" for at in range(16)]),
        "file": oc.cholesky(exponential(N), store=path),
        "loaded": oc.load(path),
        "closed": oc.cholesky(exponential(N), precision_threshold=1e-4, tile_size=16),
    }
    made["closed"].close()
    yield made
    for factor in made.values():
        factor.close()


@pytest.fixture(scope="module")
def objects(factors):
    """As below, made once."""
    return public_objects(factors)


def multiplied():
    """A multiplier that has made products on several devices, and is closed."""
    with oc.multiplier(csr_array(np.ones((5, 5))), 20, devices=[f"host:{at}" for at in range(16)], trace=True) as product:
        product.apply(np.ones((5, 20)), times=3)
    return product


def eigenpairs():
    """Eigenpairs by each way: with restarts on devices that stream, and by LAPACK."""
    path = csr_array(np.diag(np.ones(299), 1) + np.diag(np.ones(299), -1))
    few = oc.eigsh(path, 2, ncv=30, block=2, devices=[f"host:{at}" for at in range(16)], trace=True, tol=1e-2, check=False)
    return [few, oc.eigsh(csr_array(np.eye(5)), 2, devices="host:0")]


def imputations():
    """An imputation in arrays, and one by a plan on devices."""
    ring = np.roll(np.eye(9), 1, axis=1) + np.roll(np.eye(9), -1, axis=1)
    fourier = oc.GraphFourier(ring)
    x = oc.testing.low_rank_tensor(fourier, 4, 5, 1)
    mask = np.arange(9) % 3 > 0
    devices = [f"host:{at}" for at in range(16)]
    return fourier, [
        oc.impute(x, mask, fourier, n_lambdas=3, devices="host:0"),
        oc.impute(x, mask, fourier, n_lambdas=3, devices=devices, trace=True),
    ]


def cluster_report():
    """The report of a run that was none, with figures of one."""
    plan = plan_cluster(TileGrid(8192, 512), [WorkerRates(1 << 34)] * 2, ClusterRates(1e9), height=2)
    busy = {"tcp://10.0.0.1:4001": 1.5, HOSTILE: 1.4}
    return tb.ClusterReport(
        plan, plan.blocks, FP64, "native", "cluster", 2.0, 2.5, {"nb": 512}, plan.n_tasks, busy_seconds=busy, repeated=1
    )


def public_objects(factors):
    """For each public class some objects, with long and hostile text where it holds text of a user."""
    native = factors["native"]
    half = oc.from_function(2 * N, lambda rows, cols, out, stream: out.fill(1.0))
    graph = oc.block_csr(oc.testing.rmat(6))
    triplets = oc.svds(graph, 2, devices="host:0")
    fourier, imputed = imputations()
    square = oc.from_function(N, lambda rows, cols, out, stream: out.fill(1.0))
    return {
        "CholeskyFactor": list(factors.values()),
        "HalfSolveSums": [native.half_solve_sums(half, columns=range(N, N + 4), vectors=np.zeros((N, 1)))],
        "InverseTraces": [native.inverse_traces([square], np.zeros((N, 1)))],
        "SignAndLogdet": [native.slogdet()],
        "TransposedFactor": [*(view for factor in factors.values() for view in (factor.T, factor.H)), factors["complex"].conj()],
        "FactorOptions": [oc.FactorOptions(), oc.FactorOptions(devices=["cuda:0"] * 40, memory_budget="8 GB", moduli=13)],
        "Plan": [
            *(factor.report.plan for factor in factors.values() if factor.report is not None),
            oc.plan(200_000, tile_size=8192, memory_budget="8 GB"),
            oc.plan(40_000, tile_size=1024, memory_budget="1 GB"),
        ],
        "FactorReport": [factor.report for factor in factors.values() if factor.report is not None],
        "ClusterPlan": [cluster_report().plan],
        "ClusterReport": [cluster_report()],
        "Trace": [native.trace, factors["mixed"].trace, oc.Trace(()), oc.Trace((), metadata={"n": HOSTILE})],
        "HostMemory": [oc.HostMemory()],
        "RandomGraph": [oc.testing.rmat(5)],
        "Operator": [oc.laplacian(csr_array(np.ones((5, 5))), normalized=True)],
        "BlockCSR": [oc.block_csr(csr_array(np.eye(5)))],
        "Multiplier": [multiplied()],
        "ClusterProducts": [
            tb.ClusterProducts(
                ("tcp://10.0.0.1:4001", HOSTILE), ("rows",) * 2, HOSTILE, 1, 0, (), 9, 9, 9, 9, {HOSTILE: 1}, 0.1, 0.2
            )
        ],
        "MultiplyReport": [multiplied().report, oc.multiplier(csr_array(np.eye(5)), devices="host:0").report],
        "MultiplyPlan": [
            multiplied().plan,
            oc.plan_multiply(
                ((1 << 31, (1 << 31) - 1), 1 << 40, "fp64"),
                99,
                devices=[f"cuda:{at}" for at in range(40)],
                memory_budget="900 GiB",
            ),
        ],
        "Eigenpairs": eigenpairs(),
        "EigshReport": [pairs.report for pairs in eigenpairs()],
        "EigshPlan": [
            oc.plan_eigsh(((9, 9), 9, "fp64"), 2, devices="host:0"),
            oc.plan_eigsh(
                ((1 << 30, 1 << 30), 1 << 40, "fp64"), 99, devices=[f"cuda:{at}" for at in range(40)], memory_budget="9000 GiB"
            ),
        ],
        "NoConvergenceError": [
            oc.errors.NoConvergenceError(3, np.ones(2), np.ones((9, 2)), np.ones(2), 0.1, 1e-9, HOSTILE * 9, HOSTILE * 9)
        ],
        "Precision": [*oc.Precision],
        "PassRates": [oc.rates.PassRates(5.5e10, 2e12, 3.5e10, 4.7e10, 5e-5)],
        "FileKind": [tb.TRACE_FILES, tb.FileKind(HOSTILE * 9, b"\0" * 999)],
        "Output": [tb.Output("--output", "x" * 999, tb.TRACE_FILES, HOSTILE * 9)],
        "Drawing": [tb.Drawing(10, 10, HOSTILE)],
        "CertifiedBound": [factors["mixed"].report.certified_bound, tb.CertifiedBound(float("nan"), float("inf"), 32)],
        "CertifiedAnswers": [factors["mixed"].certify(np.ones(N))],
        "CertifiedValue": [
            tb.CertifiedValue(1.0, float("-inf"), float("inf"), 1e300, 1e-9),
            factors["mixed"].logdet(certified=True),
        ],
        "CertifiedSignAndLogdet": [factors["mixed"].slogdet(certified=True)],
        "CertifiedSolution": [factors["mixed"].solve(np.ones(N), certified=True)],
        "AsymmetryWarning": [oc.errors.AsymmetryWarning(HOSTILE * 9)],
        "BatchFactor": [oc.cholesky(np.stack([exponential(N)] * 3))],
        "BatchReport": [oc.cholesky(np.stack([exponential(N)] * 3)).report],
        "BudgetWarning": [oc.errors.BudgetWarning(HOSTILE * 9)],
        "BudgetError": [oc.BudgetError(HOSTILE * 9, 1, 2, "give more")],
        "CheckpointError": [oc.errors.CheckpointError("x" * 999, {HOSTILE * 9: ("1" * 999, "2" * 999)})],
        "DamagedFileError": [oc.errors.DamagedFileError(HOSTILE * 9, "x" * 999, tile=(10**6, 10**6), first=0, stop=10**12)],
        "DeviceError": [oc.errors.DeviceError("cuda:0", HOSTILE * 9, "x" * 999)],
        "ForkedError": [oc.errors.ForkedError(HOSTILE * 9, 10**9)],
        "StoppedError": [oc.errors.StoppedError(HOSTILE * 9, 10**12, 10**13, "pass")],
        "Option": [tb.Option(HOSTILE * 99, "x" * 999)],
        "CallSeconds": [tb.CallSeconds(), tb.CallSeconds(1.0, {HOSTILE * 9: 1e300}, 0.5)],
        "CallBytes": [tb.CallBytes({f"memory->cuda:{at}": 1 << 60 for at in range(99)})],
        "ClosedError": [oc.errors.ClosedError(HOSTILE * 9)],
        "MissingFolderError": [oc.errors.MissingFolderError(HOSTILE * 9, "store", "x" * 999, "y" * 999)],
        "DowndateError": [oc.errors.DowndateError(10**9, (10**6, 10**6))],
        "NotHermitianError": [oc.errors.NotHermitianError(10**9, (10**6, 10**6))],
        "MissingValueError": [oc.errors.MissingValueError(HOSTILE, (10**9, 10**9))],
        "NonFiniteError": [oc.errors.NonFiniteError(10**9, 10**9, (10**6, 10**6))],
        "NotPositiveDefiniteError": [oc.NotPositiveDefiniteError(10**9, (10**6, 10**6))],
        "OocCholError": [oc.OocCholError(HOSTILE * 9), oc.OocCholError()],
        "OutputError": [oc.errors.OutputError(HOSTILE * 9, "store", "x" * 999)],
        "ClusterError": [oc.errors.ClusterError(HOSTILE, "look at it", {f"tcp://{each}": HOSTILE for each in range(99)})],
        "PlanSizeError": [oc.errors.PlanSizeError(f"a matrix of order {10**9}", 10**12, 10**7, 1000, 2048, 10**12)],
        "PrecisionError": [oc.errors.PrecisionError(1e-3, 1e-9)],
        "PrecisionWarning": [oc.errors.PrecisionWarning(HOSTILE * 9)],
        "InputWarning": [oc.errors.InputWarning(HOSTILE * 9)],
        "RatesWarning": [oc.errors.RatesWarning(HOSTILE * 9)],
        "RefinementError": [oc.errors.RefinementError(3, 1e-3, 1e-16, 100, HOSTILE * 9, np.zeros((1000, 4)))],
        "ScheduleError": [oc.errors.ScheduleError(HOSTILE * 9)],
        "UnsupportedTypeError": [oc.errors.UnsupportedTypeError("refine=True", "complex64", HOSTILE * 9)],
        "SingularTriplets": [triplets],
        "SvdsReport": [triplets.report],
        "SvdsPlan": [triplets.report.plan, oc.plan_svds(((9, 9), 9, "fp64"), 2, devices="host:0")],
        "Product": [oc.multiply(csr_array(np.eye(5)), np.ones(5), devices="host:0")],
        "PreconditionerError": [oc.errors.PreconditionerError(HOSTILE * 9, "give another")],
        "SingularMatrixError": [oc.errors.SingularMatrixError(HOSTILE * 9, "x" * 999, "give another shift")],
        "SparseInputError": [oc.errors.SparseInputError(HOSTILE * 9, "row 3", "column 7 is outside", "mend it")],
        "TierError": [oc.errors.TierError(HOSTILE * 9)],
        "GraphFourier": [fourier],
        "SweepCuts": [tb.SweepCuts("cuda:0", csr_array(np.eye(5)))],
        "Machine": [tb.Machine([f"host:{at}" for at in range(16)], "1 GiB")],
        "Imputed": imputed,
        "ImputeReport": [each.report for each in imputed],
        "SuggestingParser": [tb.SuggestingParser(prog=HOSTILE)],
        "HeldOut": [tb.HeldOut(144, 0.1, (1.0,) * 999, (1e-300,) * 999, np.inf, 1e300, other) for other in (None, 0.5)],
        "LambdaRow": list(imputed[0].history),
        "TensorPlan": [
            imputed[1].report.plan,
            oc.plan_impute(
                (1 << 17, 512, 512), "entries", 999, devices=[f"cuda:{at}" for at in range(40)], memory_budget="900 GiB"
            ),
        ],
        "ImputationWarning": [oc.errors.ImputationWarning(HOSTILE * 9)],
        "ImputationInterrupted": [oc.errors.ImputationInterrupted(imputed[0])],
        "MissingPackageError": [oc.errors.MissingPackageError(HOSTILE * 9)],
        "NonFiniteTensorError": [oc.errors.NonFiniteTensorError("X[3, 0, 7]", HOSTILE * 9, "x" * 999)],
    }


def test_every_public_object_keeps_the_promises(objects):
    for name, kind in classes_of(public_names()).items():
        assert objects.get(kind.__name__), f"{name} is public: say here how to make one, so that what it prints is looked at"
        for one in objects[kind.__name__]:
            assert type(one) is kind
            check_prints(one)


def test_what_public_objects_hold_keep_the_promises_too(objects):
    seen = Counter()
    for several in objects.values():
        for one in several:
            for part in parts_of(one):
                seen[type(part).__name__] += 1
                check_prints(part)
    assert {"Program", "Step", "MatrixNorms", "PrecisionMap", "Execution", "DeviceBudget", "Passes"} <= set(seen)


def test_what_public_functions_make_keeps_the_promises(factors):
    def tile_fn(rows, cols, out, stream):
        out[...] = 0.0

    made = [oc.devices(), *oc.devices().devices, oc.from_function(4, tile_fn), tb.cuda_source("code" * 999, "kernel", 1.0)]
    made += [oc.from_function(4, tile_fn, cuda=made[-1]), factors["native"].residual(exponential(N))]
    made += [factor.report.escalations for factor in factors.values() if factor.report is not None]
    for one in made:
        check_prints(one)
    assert "tile_fn" in repr(made[2]) and "kernel" in repr(made[3])


def test_pictures_are_there_and_say_the_figures(factors):
    native, mixed = factors["native"], factors["mixed"]
    assert f"{native.grid.nt} x {native.grid.nt} tiles of 16" in native._repr_html_()
    assert "closed" in factors["closed"]._repr_html_() and "&lt;b&gt;.ooc" in repr_html_of_file(factors)
    for name, count in mixed.formats.items():
        assert f"{count} tile{'s' * (count != 1)} in {name}" in mixed._repr_html_()
        assert f"{count} {name}" in mixed.report.plan._repr_html_()
    for kind in native.report.busy_seconds:
        assert f">{kind}</text>" in native.report._repr_html_()
    assert {"A read", "products", "POTRF and TRSM", "L written"} <= set(native.report.busy_seconds) <= set(KINDS)
    assert ">certificate</text>" in mixed.report._repr_html_()


def repr_html_of_file(factors):
    html = factors["file"]._repr_html_()
    assert "in file " in html
    return factors["file"].report._repr_html_() + html.replace("...", "&lt;b&gt;.ooc")


def predicted_report():
    """A report of a run with rates, whose times are twice the predicted ones, and whose records nobody may look at."""
    options = oc.FactorOptions(tile_size=4, devices="host:0", memory_budget="64 KiB")
    plan = fresh_plan(Problem(64, 8, "array"), options, lambda *_: UNIT_RATES)
    times = [
        [(round(2e9 * start), round(2e9 * end)) for start, end in zip(starts, ends, strict=True)]
        for starts, ends in zip(plan.timeline.starts, plan.timeline.ends, strict=True)
    ]

    def forbidden():
        raise AssertionError("the records are made")

    links = tuple(tuple(program.link_bytes) for program in plan.programs)
    return tb.FactorReport(
        plan, Execution(2 * plan.seconds, links, (1,), LazySequence(forbidden), times=times), 1 + 2 * plan.seconds
    )


def test_neither_line_nor_page_nor_picture_makes_records():
    report = predicted_report()
    assert len(repr(report)) < LONGEST_LINE and "predicted" in report._repr_html_()
    check_html(report._repr_html_())
    assert "waited for a copy" in str(report) and report.to_dict()["exposed_copy_share"] > 0
    assert repr(report.execution.records) == "<what nobody looked at>"


def test_seconds_by_kind_are_those_of_the_steps():
    report = predicted_report()
    plan = report.plan
    assert report.seconds.predicted == plan.seconds
    assert report.busy_seconds == pytest.approx({kind: 2 * seconds for kind, seconds in report._predicted_busy.items()})
    # unit rates: every GEMM, SYRK, POTRF and TRSM takes a second
    counts = plan.task_counts
    assert report._predicted_busy["products"] == pytest.approx(counts["GEMM"] + counts["SYRK"])
    assert report._predicted_busy["POTRF and TRSM"] == pytest.approx(counts["POTRF"] + counts["TRSM"])


def test_seconds_of_a_million_steps_take_no_time():
    """Some microseconds for each would be felt when a notebook shows a report; those that other processes take do not count."""
    report = predicted_report()
    steps = report.plan.programs[0].steps
    copies = -(-200_000 // len(steps))
    program = replace(report.plan.programs[0], steps=steps * copies)
    times = [report.execution.times[0] * copies]

    def seconds():
        began = time.thread_time()
        seconds_by_kind([program], times, 1e-9)
        return (time.thread_time() - began) / len(program.steps)

    assert min(seconds() for _ in range(3)) < 2e-6


def test_a_run_without_times_has_a_picture_of_its_parts():
    report = predicted_report()
    bare = replace(report, execution=replace(report.execution, times=()))
    check_html(bare._repr_html_())
    assert bare.busy_seconds == {} and "busy" not in bare._repr_html_()


def test_escalations_are_a_tuple_that_can_be_read(factors):
    report = factors["escalated"].report
    steps = report.escalations
    assert report.to_dict()["seconds"]["predicted"] == report.seconds.predicted
    assert isinstance(steps, tuple) and repr(steps) == "Escalations(1 x row, 1 x fp64)"
    assert str(steps).splitlines() == [str(step) for step in steps]
    assert all(str(step) in str(report) for step in steps)
    assert pickle.loads(pickle.dumps(steps)) == steps and type(pickle.loads(pickle.dumps(steps))) is Escalations
    assert str(Escalations()) == "nothing was computed again"
    many = Escalations(Escalation(Remedy.ROW, at, at, 1e-6, 0.01) for at in range(500))
    check_prints(many)
    assert str(many).splitlines()[-1] == str(many[-1])


def test_the_longest_pages_are_pages():
    devices = [f"host:{at}" for at in range(16)]
    for tile_size in (16, 13):  # 40 tile rows, of which each has a line, and 50
        plan = oc.plan(exponential(640), tile_size=tile_size, precision_threshold=1e-4, devices=devices)
        check_prints(plan)
        assert "... and 9 more, the last one host:15" in str(plan)
    assert "more" not in str(oc.plan(640, tile_size=16, devices=devices[:7]))


def test_no_command_prints_hundreds_of_lines(capsys):
    words = "plan --n 7680 --tile-size 128 --policy v3 --memory-budget 256MB --json"
    assert main(words.split()) == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) < 40 and len(json.loads(printed)["panels"]) == 60


def test_options_show_what_was_asked():
    assert repr(oc.FactorOptions()) == "FactorOptions()"
    assert repr(oc.FactorOptions(tile_size=64, strict=False)) == "FactorOptions(tile_size=64, strict=False)"
    assert eval(repr(oc.FactorOptions(tile_size=64)), {"FactorOptions": oc.FactorOptions}) == oc.FactorOptions(tile_size=64)


# the words themselves


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.8409766269988084, "3.84098"),
        (np.float64(0.1), "0.1"),
        (10**30, str(10**30)),
        (True, "True"),
        (None, "None"),
        (np.array([1.0, 0.12345678]), "[1, 0.123457]"),
        (np.zeros((120, 2)), "<120 x 2 float64>"),
        (np.array(1.0), "<scalar float64>"),
        (("a",), "('a',)"),
        ({}, "{}"),
        (set(), "{}"),
        ({"a": 1.23456789}, "{'a': 1.23457}"),
        (list(range(5)), "<5 items>"),
        ([1], "[1]"),
        (Remedy.ROW, "row"),
        (StepKind.FETCH, "fetch"),
        (object(), "<object>"),
        (1 - 1e-9, "1 - 1e-09"),
    ],
)
def test_values_are_brief(value, text):
    assert brief(value) == text


def test_no_strangers_repr_and_no_length_is_asked():
    class Stranger:
        def __repr__(self):
            raise AssertionError("asked")

        __len__ = __repr__

    assert (
        one_line(Stranger(), {"one": Stranger(), "many": [Stranger()] * 2})
        == "Stranger(one=<Stranger>, many=[<Stranger>, <Stranger>])"
    )


def test_what_does_not_fit_is_left_out_from_the_end():
    line = one_line(object(), {f"name{at}": "x" * 40 for at in range(9)})
    assert len(line) < LONGEST_LINE and line.startswith("object(name0='xxx") and line.endswith("', ...)")
    assert one_line(type("A" * 150, (), {})(), {"b" * 150: 1}).endswith("(...)")
    assert shortened("a" * 300) == "a" * 193 + "...aaa" and shortened("a" * 199) == "a" * 199


def test_bars_of_nothing_are_drawn():
    drawing = tb.Drawing(300, 100, "none")
    assert draw_bars(drawing, 10, [("zero", [Bar(0.0, "#000", "0")]), ("none", [])]) > 10
    check_html(tb.notebook_html("", drawing))


def test_user_text_is_no_markup():
    drawing = tb.Drawing(300, 100, HOSTILE)
    drawing.words(10, 20, HOSTILE)
    drawing.words(10, 40, HOSTILE)
    drawing.rectangle(0, 0, -1, 2, "#000")
    check_html(tb.notebook_html(HOSTILE, drawing))


def test_a_matrix_is_still_shown_after_it_changed_hands():
    """Memory that is lent says so, and what is closed still prints."""
    with oc.HostMemory() as memory:
        factor = oc.cholesky(random_spd(64), tile_size=16, store=memory)
        assert "is_lent=True" in repr(memory)
        factor.close()
        assert "is_lent=False" in repr(memory) and "closed" in repr(factor)
        check_prints(factor)
