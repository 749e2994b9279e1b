"""The command ``ooc-chol``: it ends quietly when a signal comes while the package is imported, which takes a second.

A module beside the package, since Python imports a package before anything in it: nothing inside ``ooc_chol`` could do this.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

#: Signals that end a command.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Import the package and run its command line.

    Returns
    -------
    int
        As :func:`ooc_chol.cli.main`.
    """
    _open_standard_streams()
    before = {number: signal.getsignal(number) for number in _ENDING}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _leave)
    from ooc_chol.cli import main as run

    try:
        return run(imported=restore)
    except KeyboardInterrupt:  # after the command
        return 128 + signal.SIGINT


def _open_standard_streams() -> None:
    """Open as nothing what the shell has closed (``2>&-``): a file would get its number, and what libraries print."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _leave(number: int, _: FrameType | None) -> None:
    """End the process as the shell expects of this signal; there is nothing to clean up yet."""
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
