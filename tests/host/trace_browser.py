"""The script that opens traces in a browser, for the tests."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.documents import ROOT


def screenshots() -> ModuleType:
    """The script that drives the browser."""
    spec = importlib.util.spec_from_file_location("benchmarks_trace_screenshots", ROOT / "benchmarks/trace_screenshots.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
