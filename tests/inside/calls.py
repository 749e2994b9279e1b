"""Internals that the calls of all systems share."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.calls.machine": ("Machine",),
    "ooc_chol.calls.options": ("COMMON", "add_words", "documented"),
    "ooc_chol.calls.page": ("link_lines", "page_text"),
    "ooc_chol.calls.progress": ("progress_reporter",),
}
MODULES = {
    "machine": "ooc_chol.calls.machine",
    "progress": "ooc_chol.calls.progress",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
