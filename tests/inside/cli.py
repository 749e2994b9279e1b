"""Internals of the command line that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.cli.answers": ("plain",),
    "ooc_chol.cli.command": ("main", "make_parser"),
    "ooc_chol.cli.parsers": ("EXAMPLES",),
    "ooc_chol.cli.signals": ("SignalInterrupt", "signals_as_interrupts"),
}
MODULES = {
    "cli": "ooc_chol.cli",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
