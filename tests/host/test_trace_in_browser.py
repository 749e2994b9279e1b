"""A trace in the viewer itself, in a browser: what its first screen shows. Deselected where there is none."""

from __future__ import annotations

import importlib.util
import re

import pytest

from benchmarks import trace_screenshots as script
from benchmarks.running import main
from ooc_chol.tracing import Trace
from tests.documents import ROOT, read
from tests.plan.simulated_records import Operation, simulate


@pytest.fixture
def path(tmp_path):
    """A trace of sixty operations on three streams, each of which waits for the one in front."""
    program: list[Operation] = []
    for _ in range(20):
        for stream in ("copy-in", "compute", "copy-out"):
            after = (len(program) - 1,) if program else ()
            program.append(Operation("host:0", stream, 10**6, 2_000, after))
    works = {"compute": "product"}
    records = tuple(record._replace(work=works.get(record.stream, "")) for record in simulate(program))
    return Trace(records, records, {"n": 4096, "policy": "planned", "budget_bytes": 5000}).save(tmp_path / "run.pftrace")


#: Asks the viewer's own engine.
QUERY = """async sql => {
  const result = await app.trace.engine.query(sql), rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) rows.push(result.columns().map(name => String(row.get(name))));
  return rows;
}"""


@pytest.mark.viewer
def test_the_engine_of_the_viewer_takes_the_trace_as_it_is_meant(path):
    sql = re.search(r"```sql\n(.*?)```", read(ROOT / "docs/traces.md"), flags=re.DOTALL)
    colours = "select extract_arg(arg_set_id, 'correlation_id') as colour, count(*) from slice"
    colours += " where category in ('fetch', 'compute', 'write') group by colour"
    assert sql is not None
    with script.opened(path, script.told()) as page:
        assert page.evaluate(QUERY, "select name from stats where severity in ('error', 'data_loss') and value > 0") == []
        assert page.evaluate(QUERY, "select count(*) from flow") == [[str(2 * 59)]]
        assert page.evaluate(QUERY, colours) == [["fetching", "40"], ["product", "40"], ["writing", "40"]]
        longest = page.evaluate(QUERY, sql[1])
    assert len(longest) == 20 and all(name.startswith("wait for fetch (") for name, *_ in longest)


@pytest.mark.viewer
def test_the_first_screen_shows_the_run_its_streams_and_their_predictions(path):
    with script.opened(path, script.told()) as page:
        shown = script.titles(page)
        assert not page.locator(".pf-modal-dialog").count(), "the viewer has nothing to complain about"
    expected = ["run, n = 4,096", "host:0 computes", "host:0 resident", "budget of a device"]
    for stream in ("copy-in", "compute", "copy-out"):
        expected += [f"host:0 {stream}", f"host:0 {stream}, predicted"]
    assert [name for name in shown if name in expected] == expected
    assert "host:0 compute, waits" in shown and "host:0 copy-in, waits" not in shown
    assert "Global Track Events" not in shown


def test_the_script_says_what_is_missing(monkeypatch, capsys, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "playwright" else found(name, *rest))
    assert main(["trace_screenshots", "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "trace_screenshots: there is no Playwright (pip install playwright)\n"
    assert not list(tmp_path.iterdir())
