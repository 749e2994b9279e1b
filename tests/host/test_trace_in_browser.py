"""A trace in the viewer itself, in a browser: what its first screen shows. Deselected where there is none."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from ooc_chol.tracing import Trace
from tests.documents import ROOT
from tests.plan.simulated_records import Operation, simulate


def screenshots() -> ModuleType:
    """The script that drives the browser."""
    spec = importlib.util.spec_from_file_location("benchmarks_trace_screenshots", ROOT / "benchmarks/trace_screenshots.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.viewer
def test_the_first_screen_shows_the_run_its_streams_and_their_predictions(tmp_path):
    streams = {"copy-in": (), "compute": (0,), "copy-out": (1,)}
    records = tuple(simulate([Operation("host:0", stream, 10**6, 2_000, after) for stream, after in streams.items()] * 20))
    path = Trace(records, records, {"n": 4096, "policy": "planned", "budget_bytes": 5000}).save(tmp_path / "run.pftrace")
    script = screenshots()
    with script.opened(path, script.told()) as page:
        shown = script.titles(page)
        assert not page.locator(".pf-modal-dialog").count(), "the viewer has nothing to complain about"
    expected = ["run, n = 4,096", "host:0 computes", "host:0 resident", "budget of a device"]
    for stream in streams:
        expected += [f"host:0 {stream}", f"host:0 {stream}, predicted"]
    assert [name for name in shown if name in expected] == expected
    assert "host:0 compute, waits" in shown and "host:0 copy-in, waits" not in shown
    assert "Global Track Events" not in shown


def test_the_script_says_what_is_missing(monkeypatch, capsys, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "playwright" else found(name, *rest))
    script = screenshots()
    assert script.main(["--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "trace_screenshots: there is no Playwright (pip install playwright)\n"
    assert not list(tmp_path.iterdir())
