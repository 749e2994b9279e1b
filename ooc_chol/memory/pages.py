"""Allocations of host memory, in huge pages where the system has them and touched before they are page-locked; large copies."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import PAGE_BYTES
from ooc_chol.process.address_space import shortage, tightest_limit
from ooc_chol.process.team import ThreadTeam

#: Bytes of a huge page of x86 and of most ARM systems. What is smaller than four of them gets ordinary pages.
HUGE_PAGE_BYTES = 2 << 20
_LEAST_HUGE_BYTES = 4 * HUGE_PAGE_BYTES


class Purpose(NamedTuple):
    """Purpose of host memory, in the words of an error."""

    what: str  #: Such as ``"host memory for L"``
    advice: str  #: What else the user can do


#: L of a factorization.
FOR_L = Purpose("host memory for L", "keep L in a file (store=) or over A (overwrite=True)")


def allocate_aligned(nbytes: int, purpose: Purpose = FOR_L) -> NDArray[np.uint8]:
    """``nbytes`` uninitialised bytes that start at a page: at a huge one, where there are enough of them.

    Transparent huge pages are asked for by ``madvise``: on an H200's host 24 GiB are then touched in 0.49 s instead of 1.1,
    page-locked in 0.50 instead of 0.91 and unmapped in 0.08 instead of 0.80. Raises ``BudgetError``: the
    system does not grant as many.
    """
    try:
        if nbytes >= _LEAST_HUGE_BYTES:
            return _mapped(nbytes)
        return _aligned(np.empty(nbytes + PAGE_BYTES, dtype=np.uint8), nbytes, PAGE_BYTES)
    except (MemoryError, OSError) as error:
        raise shortage(nbytes, purpose.what, purpose.advice) from error


def allocate_with_room(nbytes: int, room_bytes: int, purpose: Purpose = FOR_L) -> NDArray[np.uint8]:
    """As :func:`allocate_aligned`, and behind them addresses for ``room_bytes`` more, where these cost nothing.

    They do where a limit counts addresses, and for what is too little to be a mapping of its own.
    """
    if nbytes >= _LEAST_HUGE_BYTES and tightest_limit() is None and not _counts_addresses():
        with suppress(MemoryError, OSError):
            return _mapped(nbytes + room_bytes)
    return allocate_aligned(nbytes, purpose)


def _counts_addresses() -> bool:
    """Tell whether the system grants no more addresses than it has memory (``vm.overcommit_memory`` is 2), or does not tell."""
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text(encoding="ascii").strip() == "2"
    except OSError:
        return True


def _mapped(nbytes: int) -> NDArray[np.uint8]:
    """A mapping of its own, which ends with the last array that shows it."""
    mapping = mmap.mmap(-1, nbytes + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # of a kernel without them: ordinary pages will do
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return _aligned(np.frombuffer(mapping, dtype=np.uint8), nbytes, HUGE_PAGE_BYTES)


def _aligned(raw: NDArray[np.uint8], nbytes: int, alignment: int) -> NDArray[np.uint8]:
    """``nbytes`` bytes of ``raw`` from the first multiple of ``alignment`` on."""
    skip = -raw.ctypes.data % alignment
    return raw[skip : skip + nbytes]


def touch(part: NDArray[np.uint8]) -> None:
    """Write to every page of ``part``, which changes nothing in it: page faults are most of what page-locking waits for.

    Nobody else may write there meanwhile. The interpreter lock is released.
    """
    pages = part[::PAGE_BYTES]
    np.bitwise_or(pages, np.uint8(0), out=pages)


def forget(part: NDArray[np.uint8]) -> None:
    """Give whole pages of an allocation back to the system; nobody reads them again before writing them."""
    owner: object = part
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        start = part.ctypes.data - np.frombuffer(owner, dtype=np.uint8).ctypes.data
        owner.madvise(mmap.MADV_DONTNEED, start, part.size)


def copy_by(team: ThreadTeam, target: NDArray[Any], source: NDArray[Any]) -> None:
    """``target[...] = source``, arrays of one shape, some rows by each thread of ``team``."""
    team.run([partial(np.copyto, target[rows], source[rows]) for rows in team.shares(len(target), target.nbytes)])


def resident_bytes(*, own: bool = False) -> int:
    """Bytes of the process in main memory, all or without what it shares with others; 0 where the system does not tell."""
    try:
        resident, shared = Path("/proc/self/statm").read_text(encoding="ascii").split()[1:3]
    except OSError:
        return 0
    return (int(resident) - int(shared) * own) * os.sysconf("SC_PAGE_SIZE")
