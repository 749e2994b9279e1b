"""Internals of ``ooc_chol.tracing`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.tracing.analysis": ("computing_ns",),
    "ooc_chol.tracing.perfetto_packets": ("COLOURS",),
    "ooc_chol.tracing.records": ("LazySequence",),
}
MODULES = {
    "viewer": "ooc_chol.tracing.viewer",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
