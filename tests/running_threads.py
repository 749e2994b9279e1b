"""Threads that a call may leave behind."""

from __future__ import annotations

import threading


def running_threads() -> int:
    """Threads of the process, but for the one that gives memory back: it begins with the first memory, and outlives its call."""
    return sum(thread.name != "ooc_chol releaser" for thread in threading.enumerate())
