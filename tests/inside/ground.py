"""Internals of what lies directly in ``ooc_chol`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.config": (
        "PAGE_BYTES",
        "cache_directory",
        "format_bytes",
        "parse_bytes",
        "parse_count",
        "parse_devices",
        "whole_pages",
    ),
    "ooc_chol.drawing": ("Bar", "draw_bars"),
    "ooc_chol.installation": ("_clone",),
    "ooc_chol.prints": ("brief", "shortened"),
}
MODULES = {
    "installation": "ooc_chol.installation",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
