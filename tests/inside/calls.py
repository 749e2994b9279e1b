"""Internals that the calls of all systems share."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.calls.options": ("COMMON",),
}

__getattr__ = names_of(__name__, NAMES)
