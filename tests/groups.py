"""Files of tests that must not run beside each other, or that share what is dear to start."""

from __future__ import annotations

#: Files whose tests watch the resident memory of their process or interrupt it, and those that look closely at limits, threads
#: or clocks: never two of them at once.
SERIAL_FILES = {
    "tests/host/test_device.py",
    "tests/host/test_driver.py",
    "tests/host/test_errors.py",
    "tests/host/test_interrupts.py",
    "tests/host/test_leaks.py",
    "tests/host/test_limits.py",
    "tests/host/test_page_locking.py",
    "tests/host/test_rates_measuring.py",
    "tests/host/test_signals.py",
    "tests/host/test_team.py",
}
#: Files whose tests share a cluster of two processes: all for one process of pytest, one after the other.
CLUSTER_FILES = ("tests/apps/geostat/test_cluster", "tests/host/test_cluster_")


def group_of(file: str) -> str:
    """Files of equal groups run one after the other."""
    if file.startswith(CLUSTER_FILES):
        return "cluster"
    return "serial" if file in SERIAL_FILES else file
