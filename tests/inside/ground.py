"""Internals of sizes, extras and display that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.config": (
        "PAGE_BYTES",
        "cache_directory",
        "format_bytes",
        "long_time",
        "parse_bytes",
        "parse_count",
        "parse_devices",
        "whole_pages",
    ),
    "ooc_chol.display.drawing": ("Bar", "draw_bars"),
    "ooc_chol.display.prints": ("brief", "shortened"),
    "ooc_chol.extras": ("_clone",),
}
MODULES = {
    "installation": "ooc_chol.extras",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
