"""The case that opens traces in a browser, for the tests."""

from __future__ import annotations

from types import ModuleType

from benchmarks import trace_screenshots


def screenshots() -> ModuleType:
    """The module that drives the browser."""
    return trace_screenshots
