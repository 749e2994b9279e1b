"""What may fail after a search and must not take its estimate with it."""

from __future__ import annotations

import ooc_chol as oc

#: Too little memory, a disk, a device, numbers: errors of a step after the expensive one. Faults of the program itself
#: (``AttributeError``, ``AssertionError``, ...) are none of them.
STEP_ERRORS: tuple[type[Exception], ...] = (oc.OocCholError, MemoryError, OSError, ValueError, RuntimeError)
