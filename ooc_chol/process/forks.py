"""Resources that a forked child must not use: threads, streams and contexts of a driver stay with the process that made them."""

from __future__ import annotations

import os

from ooc_chol.errors import ForkedError

#: Processes in which a driver was first called, by the kind of device: this process, or one that it was forked from.
_USED_IN: dict[str, int] = {}


def refuse_in_child(process: int, what: str) -> None:
    """Raise unless ``process``, which made ``what``, is this one."""
    if process != os.getpid():
        raise ForkedError(what, process)


def note_driver(kind: str) -> None:
    """Note that the driver of a kind of device is called; refuse it where that was so before the process was forked."""
    refuse_in_child(_USED_IN.setdefault(kind, os.getpid()), f"the driver of {kind} devices")
