"""Errors of the application, and those that a step after an expensive one may meet."""

from __future__ import annotations

import ooc_chol as oc


class MissingExtraError(oc.OocCholError, ImportError):
    """A part of the application needs a package that is not installed; the message names the extra that brings it."""


#: What may fail after a search and must not take its estimate with it: too little memory, a disk, a device, numbers. Faults of
#: the program itself (``AttributeError``, ``AssertionError``, ...) are none of them.
STEP_ERRORS: tuple[type[Exception], ...] = (oc.OocCholError, MemoryError, OSError, ValueError, RuntimeError)
