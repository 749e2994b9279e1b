"""Who holds the lock of a file: the system knows the process, as long as it runs on this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

_LOCKS = Path("/proc/locks")
#: Where a process's start stands among the fields of its ``stat`` behind the name, in ticks since the machine's.
_STARTED = 19


def lock_holder(descriptor: int) -> str:
    """The process that holds a ``flock`` on an open file, its name and its start in words; empty where nobody can tell.

    Nobody can in a container that does not see the process, on another machine, and where there is no ``/proc``. The number of
    the file counts and not that of its disk, which some file systems tell in two ways.
    """
    try:
        number = os.fstat(descriptor).st_ino
        lines = [line.split() for line in _LOCKS.read_text(encoding="ascii").splitlines()]
    except OSError:
        return ""
    for line in lines:
        if len(line) > 5 and line[1] == "FLOCK" and line[5].rpartition(":")[2] == str(number) and int(line[4]) > 0:
            return f"{line[4]}{_known_of(int(line[4]))}"
    return ""


def _known_of(process: int) -> str:
    """Name of a process, and when it began; empty where that cannot be seen."""
    if process == os.getpid():
        return ": this one, in another call"
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        name, _, rest = text.partition("(")[2].rpartition(")")
        since_start = int(rest.split()[_STARTED]) / os.sysconf("SC_CLK_TCK")
        began = time.time() - float(Path("/proc/uptime").read_text(encoding="ascii").split()[0]) + since_start
    except (OSError, ValueError, IndexError):
        return ""
    return f": {name}, since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(began))}"
