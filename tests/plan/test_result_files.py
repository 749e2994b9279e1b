"""The result files hold what a claim needs, agree with the recorded traces, and the documents show what they say."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import call_table, pictures, table, timelines
from benchmarks.paper.tables import with_paper_tables
from benchmarks.running import replaced
from tests.plan.result_fields import CALL_FIELDS, CALL_LINE_FIELDS, ENGINE_FIELDS, FIELDS, GPU_FIELDS
from tests.tolerances import FACTOR_ENTRY_C

pytestmark = pytest.mark.plan

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "benchmarks/results").glob("*.json"))
CALLS = sorted((ROOT / "benchmarks/results/wall").glob("*.json"))
TRACES = sorted((ROOT / "traces").glob("*.pftrace*"))

#: Device memory that the libraries take beside the budget, at most.
LIBRARY_BYTES = 256 << 20
#: The device's page tables for page-locked host memory: 8 bytes for each page of 4 KiB.
PAGE_TABLE_SHARE = 8 / 4096
#: Its page tables for the memory of other GPUs, from which it may copy: seen 64 MB for 330 GiB of three others.
PEER_TABLE_SHARE = 2.0**-12


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def result(request) -> dict:
    return json.loads(request.param.read_text(encoding="utf-8")) | {"stem": request.param.stem}


@pytest.fixture(scope="module")
def runs() -> dict:
    return timelines.read_runs()


def on_gpu(result: dict) -> bool:
    return result["devices"][0].startswith("cuda")


# what a result file says


def test_a_result_has_every_field_that_applies(result):
    expected = FIELDS | ENGINE_FIELDS[result["engine"]] | (GPU_FIELDS if on_gpu(result) else set())
    assert expected - set(result) == set()
    assert {"planned", "executed"} <= set(result["bytes"])
    if on_gpu(result):
        assert set(result["dgemm_tflops"]) == {"before", "after"}
        assert all(len(each) == len(result["devices"]) for each in result.get("dgemm_tflops_each", {}).values())
        assert {"max_scaled_over_sqrt_n", "floor"} <= set(result["residual"])
    assert all({"name", "n"} < set(peer) and ("tflops" in peer) != ("error" in peer) for peer in result["peers"])


def test_a_result_agrees_with_itself(result):
    assert result["case"] == result["stem"]
    assert re.fullmatch("[0-9a-f]{40}", result["commit"])
    assert date.fromisoformat(result["date"]).year >= 2026
    assert result["source"] in ("device-function", "host-array", "file")
    assert result["tflops"] == pytest.approx(result["n"] ** 3 / 3e12 / table.median(result["seconds"]), rel=1e-9)
    assert 0 <= result["exposed_copy_share"] <= 1


def test_executed_bytes_are_the_planned_ones(result):
    assert result["bytes"]["executed"] == result["bytes"]["planned"]
    assert result["bytes"]["executed"]["write"] >= 4 * result["n"] ** 2  # at least the triangle


def test_out_of_core_means_at_most_half_of_the_factor(result):
    """What several devices hold together counts; files from before the field, on GPUs or from files, are all out of core."""
    claimed = result.get("out_of_core", on_gpu(result) or result["source"] == "file")
    fits = 2 * len(result["devices"]) * result["budget_bytes"] <= 4 * result["n"] * (result["n"] + 1)
    assert fits == claimed or (fits and "out_of_core" not in result)


def test_residuals_keep_their_bound(result):
    """Host results are held to the same bound by the tests of whole factorizations."""
    if "residual" in result:
        assert 10 * result["residual"]["floor"] < result["residual"]["max_scaled_over_sqrt_n"] <= FACTOR_ENTRY_C


def test_device_memory_stays_within_the_budget_and_what_is_stated_beside_it(result):
    n, nb = result["n"], result["tile_size"]
    locked = 4 * n * (n + nb) + (8 * n**2 if result["source"] == "host-array" else 0)  # L, and the user's whole array
    for used in result.get("device_bytes", []):
        others = (len(result["devices"]) - 1) * result["budget_bytes"]
        beside = LIBRARY_BYTES + PAGE_TABLE_SHARE * locked + PEER_TABLE_SHARE * others
        assert used <= result["budget_bytes"] + beside


def test_each_policy_moves_no_more_than_the_one_before():
    moved: dict[tuple, dict[str, int]] = {}
    for found in filter(on_gpu, table.load()):
        names = ("commit", "engine", "n", "tile_size", "budget_bytes", "source", "devices")
        setting = tuple(str(found[name]) for name in names)
        moved.setdefault(setting, {})[found["policy"]] = sum(found["bytes"]["executed"].values())
    compared = 0
    for by_policy in moved.values():
        bytes_in_order = [by_policy[policy] for policy in ("planned", "v3", "v2", "v1", "async") if policy in by_policy]
        assert bytes_in_order == sorted(bytes_in_order)
        compared += len(bytes_in_order) == 5
    assert compared >= 1


# traces


def test_a_recorded_trace_is_the_run_of_its_result_file(runs):
    for policy, run in runs.items():
        result = timelines.result_of(policy)
        assert run.about["policy"] == result["policy"] == policy
        assert run.about["seconds"] == result["seconds"][-1]
        for link in ("fetch", "write"):
            assert timelines.total(run.measured, link).nbytes == result["bytes"]["executed"][link]
        assert timelines.total(run.measured, *timelines.KERNELS).flops == pytest.approx(result["n"] ** 3 / 3, rel=1e-3)


def test_v2_and_v3_fetched_the_same_tiles_in_the_same_order(runs):
    """As docs/ablation.md says: nothing evicts the diagonal tile at this budget."""
    v2, v3 = ([entry.label for entry in runs[policy].measured if entry.kind == "fetch"] for policy in ("v2", "v3"))
    assert v2 == v3


def test_traces_are_small_and_listed():
    text = (ROOT / "traces/README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[([^]]+)\]\(([^)]+)\) \|", text, flags=re.MULTILINE)
    assert sorted(listed) == [(path.name, path.name) for path in TRACES]
    assert max(path.stat().st_size for path in TRACES) < 3_000_000  # some 20,000 steps, measured and predicted


# documents


def test_documents_show_the_tables_of_the_files():
    documents = [path for path in (ROOT / "docs").glob("*.md") if re.search("^<!-- results", path.read_text("utf-8"), re.M)]
    assert {"ablation.md", "measurements.md"} <= {path.name for path in documents}
    for path in documents:
        text = path.read_text(encoding="utf-8")
        made = table.tables(table.load(), table.link_from(path), table.load_calls(), table.load_passes())
        up_to_date = table.updated(text, made)
        assert text == up_to_date, f"run: python -m benchmarks table --update {path.relative_to(ROOT)}"


def test_documents_show_the_tables_of_the_traces(runs):
    for name, made in timelines.made_tables(runs).items():
        text = timelines.DOCUMENTS[name].read_text(encoding="utf-8")
        assert text == replaced(text, name, made), "run: python -m benchmarks timelines --update"


def test_a_document_without_a_place_for_a_table_is_refused():
    assert replaced("a\n<!-- kernels -->\nold\n<!-- /kernels -->\nb\n", "kernels", "new").splitlines()[2] == "new"
    with pytest.raises(ValueError, match="0 places"):
        replaced("<!-- kernels -->\n<!-- /kernels -->\n", "streams", "new")


def test_a_place_for_a_table_of_the_paper_that_is_not_closed_is_refused():
    with pytest.raises(ValueError, match="0 places between <!-- likelihoods --> and <!-- /likelihoods -->"):
        with_paper_tables("<!-- likelihoods -->\nnever closed\n", ROOT / "benchmarks/results/paper")


def test_update_replaces_the_tables_and_nothing_else(tmp_path):
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- results host gpu -->\nold\n<!-- /results -->\nafter\n", encoding="utf-8")
    assert table.update(document)
    text = document.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- results host gpu -->\n|")
    assert text.endswith("\n<!-- /results -->\nafter\n")
    assert "old" not in text and "`async`" not in text and "131,072" in text
    assert not table.update(document)


def test_the_table_of_gpus_has_the_whole_call_beside_the_seconds():
    found = next(result for result in table.load() if on_gpu(result) and result["policy"] == "planned")
    heading, _, row = table.tables([found], "results")["gpu"].splitlines()[:3]
    cells = dict(zip(heading.strip("| ").split(" | "), row.strip("| ").split(" | "), strict=True))
    assert cells["whole call"] == f"{table.median(found['wall_seconds']):.4g}"
    assert float(cells["whole call"]) >= float(cells["inside"])


# whole calls


@pytest.mark.parametrize("path", CALLS, ids=lambda path: path.stem)
def test_a_file_of_whole_calls_has_its_fields_and_agrees_with_itself(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert set(content) >= CALL_FIELDS and content["case"] == path.stem
    assert re.fullmatch("[0-9a-f]{40}", content["commit"]) and date.fromisoformat(content["date"]).year >= 2026
    assert {"devices", "threads"} <= set(content["machine"])
    for line in content["lines"]:
        assert set(line) >= CALL_LINE_FIELDS
        medians = {name: table.median(seconds) for name, seconds in line["wall_seconds"].items()}
        assert line["medians"] == pytest.approx(medians)
        assert min(map(len, line["wall_seconds"].values())) >= 3
        if others := [seconds for name, seconds in medians.items() if name != "ours"]:
            assert line["ours_over_fastest"] == pytest.approx(medians["ours"] / min(others))
        inner = line["inner_seconds"] or []
        assert len(inner) in (0, len(line["wall_seconds"]["ours"]))
        assert all(inside <= whole for inside, whole in zip(inner, line["wall_seconds"]["ours"], strict=False))


def test_whole_calls_stand_by_what_is_measured_then_by_order(tmp_path):
    def write(name: str, *lines: dict) -> None:
        content = {"case": name, "machine": {"threads": 2}, "lines": lines}
        (tmp_path / "wall" / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")

    def line(measured: str, n: int, inner: list | None, **medians: float) -> dict:
        return {"measured": measured, "n": n, "engine": "native", "first_call": 0.25, "inner_seconds": inner, "medians": medians}

    (tmp_path / "wall").mkdir()
    small, large = (
        line("host", 10, None, ours=12e-6, fast=8e-6),
        line("host", 3000, [0.5, 0.25, 0.75], ours=1, slow=4, fast=0.9996),
    )
    left_out = line("host", min(call_table.LEFT_OUT), None, ours=1.0)
    write("a-host", large, small, left_out)
    write("b-gpu", line("function", 200_000, [30.0], ours=31.0))
    made = table.tables([], "results", table.load_calls(tmp_path))
    assert list(made) == ["wall"]
    what, host = "function", "[host, 2 cores](results/wall/a-host.json)"
    assert made["wall"].splitlines()[2:6] == [
        f"| [{what}](results/wall/b-gpu.json) | 200,000 | 31 s |  |  |  | 250 ms |",
        f"| {host} | 10 | 0.012 ms | fast | 0.008 ms | **1.50** | 250 ms |",
        f"| {host} | 3,000 | 1 s | fast | 1 s | **1.00** | 250 ms |",
        "",
    ]


def test_passes_stand_beside_what_bounds_them(tmp_path):
    def one(**own: object) -> dict:
        usual = {
            "devices": ["cuda:0"],
            "columns": 8,
            "precision": "FDF",
            "pass_seconds": 0.25,
            "budget_bytes": 2**33,
            "peak_bytes": 10**9,
        }
        return usual | {"bytes_a_pass": 0, "bytes_planned": 5, "bytes_executed": 5} | own

    peers = [
        {"peer": "fast", "dtype": "float64", "columns": 1, "seconds": [0.3, 0.25]},
        {"peer": "fast", "dtype": "float64", "columns": 8, "seconds": [4.0]},
        {"peer": "fast", "dtype": "float32", "columns": 1, "seconds": [0.1]},
        {"peer": "failed", "dtype": "float64", "columns": 1, "error": "out of memory"},
    ]
    passes = [
        one(),
        one(columns=1, precision="FFF"),
        one(bytes_a_pass=10**10, share_of_link=0.9876, bytes_executed=6),
        one(bytes_a_pass=10**6, share_of_bound=0.5, tier="file", is_cold=True),
    ]
    content = {"case": "a", "matrix": "rmat(9)", "kinds": ["pattern"], "entries": 10**9, "peers": peers, "passes": passes}
    (tmp_path / "sparse").mkdir()
    (tmp_path / "sparse" / "a.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "sparse" / "b.json").write_text(json.dumps({"case": "b"}), encoding="utf-8")
    (made,) = table.tables([], "results", (), table.load_passes(tmp_path)).values()
    start = "| [rmat(9), pattern](results/sparse/a.json) | cuda:0 |"
    assert made.splitlines()[2:6] == [
        f"{start} in core, 1 GB | 8, FDF | 250 ms | 0 B | **8.00** x fast |",
        f"{start} in core, 1 GB | 1, FFF | 250 ms | 0 B | **0.40** x fast |",
        f"{start} 8.59 GB | 8, FDF | 250 ms | 10 GB (not as planned) | **0.988** of the link |",
        f"{start} 8.59 GB, from a file, cold | 8, FDF | 250 ms | 1 MB | **0.50** of disk and product |",
    ]


def test_a_graph_is_shown_in_its_best_order_and_beside_something(tmp_path):
    one = {"devices": ["cuda:0"], "columns": 1, "precision": "FFF", "pass_seconds": 0.25, "budget_bytes": 2**33, "peak_bytes": 9}
    one |= {"bytes_a_pass": 0, "bytes_planned": 5, "bytes_executed": 5}
    peer = {"peer": "fast", "dtype": "float32", "columns": 1, "seconds": [0.1]}
    drawn, degree = "rmat(9, 16, 0.57, 0.19, 0.19, seed=1)", "rmat(9, 16, 0.57, 0.19, 0.19, seed=1, order='degree')"
    files = {"a": (drawn, "pattern"), "b": (degree, "pattern"), "c": (drawn, "fp32")}
    for name, (matrix, kind) in files.items():
        content = {"case": name, "matrix": matrix, "kinds": [kind], "entries": 5, "peers": [peer], "passes": [one]}
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "d.json").write_text(json.dumps(content | {"peers": [], "kinds": ["fp64"]}), encoding="utf-8")
    assert [line["case"] for line in table.pass_lines(tmp_path)] == ["b", "c"]


def test_the_last_result_of_a_case_is_shown():
    found = next(result for result in table.load() if on_gpu(result) and result["policy"] == "planned")
    later = found | {"case": "later", "commit": "0" * 40, "date": "2030-01-31"}
    assert [each["case"] for each in table.newest([later, found, other(found)])] == ["later", "four"]


def test_documents_have_a_row_for_each_line_of_whole_calls_that_is_not_left_out():
    lines = [line for path in CALLS for line in json.loads(path.read_text(encoding="utf-8"))["lines"]]
    lines = [line for line in lines if line["n"] not in call_table.LEFT_OUT]
    rows = re.findall(r"^\| \[.*\]\(\.\./benchmarks/results/wall/", (ROOT / "docs/measurements.md").read_text("utf-8"), re.M)
    assert len(rows) == len(lines) > 0


def test_update_refuses_a_document_without_a_place_and_an_unknown_table():
    with pytest.raises(ValueError, match="no place"):
        table.updated("<!-- results -->\nnever closed\n", {})
    with pytest.raises(ValueError, match="no table gpus; there are wall, gpu, predicted, policies, peers, host, passes"):
        table.updated("<!-- results gpus -->\n<!-- /results -->\n", {})


def test_a_table_tells_planned_bytes_that_were_not_met():
    found = next(result for result in table.load() if on_gpu(result) and result["policy"] == "async")
    missed = found | {"bytes": {"planned": dict(found["bytes"]["planned"], fetch=1), "executed": found["bytes"]["executed"]}}
    assert "planned)" not in table.tables([found], "")["policies"]
    assert "(0.0 planned)" in table.tables([missed], "")["policies"]


@pytest.mark.parametrize("page", ["measurements.md", "sparse.md"])
def test_tables_are_narrow(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    wide = [line for line in text.splitlines() if re.fullmatch(r"\|(?:---\|){8,}", line)]
    assert wide == []


def test_a_host_result_has_a_table_of_its_own():
    found = {
        "case": "host-fp64-file", "n": 16384, "devices": ["host:0"], "engine": "native", "source": "file",
        "budget_bytes": 256 << 20, "seconds": [20.0, 18.0, 19.0], "tflops": 0.0772,
        "peers": [{"name": "LAPACK dpotrf", "n": 8192, "tflops": 0.0965}],
        "bytes": {link: {"source": 10**9, "fetch": 2 * 10**9, "write": 10**9} for link in ("planned", "executed")},
        "exposed_copy_share": 0.0123, "machine": {"threads": 3},
        "anonymous_before_bytes": [10 << 20, 11 << 20], "anonymous_peak_bytes": [270 << 20, 273 << 20],
    }  # fmt: skip
    made = table.tables([found], "results")
    assert list(made) == ["host"]
    row = made["host"].splitlines()[2]
    assert row == ("| [file](results/host-fp64-file.json) | 16,384 | 256 MiB | 19 | **77.2** | **0.80** | 262 MiB |")


def other(found: dict, **changes) -> dict:
    """A result of four GPUs with residues, made of one that is there."""
    bytes_of = {link: {"source": 0, "fetch": 10**9, "write": 10**9, "peer": 5 * 10**9} for link in ("planned", "executed")}
    return found | {
        "case": "four", "devices": [f"cuda:{number}" for number in range(4)], "engine": "residue", "moduli": 13,
        "fallback_share": 0.004, "bytes": bytes_of, "tflops": 340.0, "dgemm_tflops": {"before": 200.0, "after": 200.0},
        "product_tflops": 420.0, "peers": [
            {"name": "cuSOLVERMg potrf", "n": 98304, "devices": ["cuda:0"] * 4, "tflops": 144.0, "seconds": [2.2], "block": 1024},
            {"name": "torch.linalg.cholesky", "n": 65536, "devices": ["cuda:0"], "error": "OocCholError: torch | not\ninstalled"},
        ],
    } | changes  # fmt: skip


def test_residues_on_several_gpus_have_their_row_below_those_of_one():
    mine = (result for result in table.load() if on_gpu(result) and result["policy"] == "planned")
    found = next(result for result in mine if len(result["devices"]) == 1 and result["engine"] == "native")
    made = table.tables([other(found), found], "results")
    _, _, one, four = made["gpu"].splitlines()[:4]
    assert f"](results/{found['case']}.json) |" in one and one.startswith("| [native") and "GPUs" not in one
    for cell in ("| [residue, 13 moduli, 0.4 % native, 4 GPUs](results/four.json) |", "**340.00**", "**1.700**"):
        assert cell in four
    assert table.over_peer(other(found), "cuSOLVER") == "2.36"
    peers = made["peers"].splitlines()
    assert "| cuSOLVERMg potrf, blocks of 1024 | 4 | 98,304 | **144.0** | 2.2 |" in peers
    assert "| torch.linalg.cholesky | 1 | 65,536 | OocCholError: torch / not installed |  |" in peers


def test_peers_shared_by_the_cases_of_a_process_have_one_row():
    found = next(result for result in table.load() if on_gpu(result) and result["peers"])
    assert len(table.peers_of([found, found | {"case": "again"}])) == len(found["peers"])


def test_failed_peers_are_no_comparison():
    found = next(result for result in table.load() if on_gpu(result) and result["policy"] == "planned")
    failed = found | {"peers": [{"name": "cuSOLVER Xpotrf", "n": 9, "error": "out of memory"}]}
    assert table.best_peer(failed) is None and table.over_peer(failed) == ""


# pictures


def test_pictures_are_drawn_from_the_files(tmp_path, runs):
    results = [result for result in table.load() if on_gpu(result)]
    pictures.draw_rates(pictures.chosen([*results, other(results[0])]), tmp_path / "rates.svg")
    pictures.draw_predictions(results, tmp_path / "predictions.svg")
    pictures.draw_streams(runs["planned"], tmp_path / "streams.svg")
    texts = {path.stem: " ".join(ElementTree.parse(path).getroot().itertext()) for path in tmp_path.iterdir()}
    for words in ("this package", "DGEMM", "cuSOLVERMg", "INT8 products", "residue 13", "4 GPUs", "340"):
        assert words in texts["rates"]
    assert all(result["case"] in texts["predictions"] for result in results)
    assert "compute: busy 100 %" in texts["streams"] and "TRSM" in texts["streams"]


def test_pictures_of_other_files_have_units_and_names(tmp_path):
    pictures.draw_orders(pictures.RESULTS / "wall", tmp_path / "orders.svg")
    pictures.draw_scaling(pictures.RESULTS / "several_gpus", tmp_path / "scaling.svg")
    pictures.draw_memory(tmp_path / "memory.svg")
    pictures.draw_passes(pictures.RESULTS / "sparse", tmp_path / "passes.svg")
    for draw, name in (
        (pictures.draw_mixed, f"mixed_families/{pictures.MIXED}"),
        (pictures.draw_certified, "certified/families"),
    ):
        found = json.loads((pictures.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        draw(found, tmp_path / f"{name.split('_')[0].split('/')[0]}.svg")
    texts = {path.stem: " ".join(ElementTree.parse(path).getroot().itertext()) for path in tmp_path.iterdir()}
    for name, words in (
        ("orders", ("seconds of a whole call", "order n", "this package", "CuPy", "cuSOLVER, 64 bits", "NumPy", "SciPy")),
        ("scaling", ("times as fast as one", "H200s of one machine", *(label for label, _ in pictures.SCALING.values()))),
        ("memory", ("GB fetched again", "memory budget, GiB", "async", "planned")),
        ("passes", ("milliseconds of a product", "8 columns", "this package, FDF", "cuSPARSE, float64", "SciPy on one thread")),
        ("passes", ("not measured",)),  # as DDD with eight columns
        ("mixed", ("precision_threshold", "ex 200: exponential, range 0.005", "rational quadratic, (1 + 30 d²)⁻²")),
        ("certified", ("absolute error of the log-determinant", "Matérn 3/2 in 2-D", "not certified")),
    ):
        assert [each for each in words if each not in texts[name]] == []


def test_a_picture_depends_on_its_data_alone(tmp_path):
    results = pictures.chosen(table.load())
    for name in ("one.svg", "two.svg"):
        pictures.draw_rates(results, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_bars_leave_out_what_was_not_measured():
    found = next(result for result in table.load() if on_gpu(result) and not result["peers"] and "product_tflops" not in result)
    assert set(pictures.bars_of(found)) == {"this package", "DGEMM"}
    assert set(pictures.bars_of(other(found))) == {"this package", "DGEMM", "INT8 products", "cuSOLVERMg"}
