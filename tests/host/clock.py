"""A clock by hand, in the place of the module ``time``."""

from __future__ import annotations


class Clock:
    """Seconds that pass only when a test says so: what the machine does beside counts nothing."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        """Seconds that have passed."""
        return self.seconds
