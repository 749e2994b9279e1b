"""Address space and data that the system still grants this process, asked before something is started that cannot say no."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple, final

from ooc_chol.config import blas_threads_asked
from ooc_chol.errors import BudgetError, TierError

#: Bytes left free beside what is asked for: temporary arrays, and what Python and the C library allocate for themselves.
SLACK_BYTES = 16 << 20
#: Bytes of a thread's stack where their number is not limited, as glibc takes them.
_STACK_BYTES = 8 << 20
#: Bytes of the library of SciPy's BLAS, and of the buffer that each of its threads maps when it starts.
_LIBRARY_BYTES, _BUFFER_BYTES = 64 << 20, 32 << 20
#: Note on an error that the user's own code raised.
USERS_NOTE = "raised in the code that makes or gives A's entries"


class Limit(NamedTuple):
    """A limit of the process, and what it leaves."""

    name: str  #: Its name for ``setrlimit`` and in a shell, such as ``"RLIMIT_AS (ulimit -v)"``
    free_bytes: int  #: Bytes that can still be mapped under it


def tightest_limit() -> Limit | None:
    """The limit of address space or data that leaves least; None where neither is limited, or the system does not tell."""
    try:
        pages = [int(field) for field in Path("/proc/self/statm").read_text(encoding="ascii").split()]
    except OSError:
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    used = {"RLIMIT_AS (ulimit -v)": (resource.RLIMIT_AS, pages[0]), "RLIMIT_DATA (ulimit -d)": (resource.RLIMIT_DATA, pages[5])}
    limits = [(name, resource.getrlimit(which)[0], page * count) for name, (which, count) in used.items()]
    left = [Limit(name, max(0, most - now)) for name, most, now in limits if most != resource.RLIM_INFINITY]
    return min(left, key=lambda limit: limit.free_bytes, default=None)


def check_room(nbytes: int, what: str, advice: str) -> None:
    """Raise unless the system would grant ``nbytes`` of memory now, and 16 MiB beside them.

    Parameters
    ----------
    nbytes : int
        Bytes that will be asked for.
    what : str
        Purpose, in words, such as ``"memory for the columns of soil.nc"``.
    advice : str
        Advice for the user, the end of the message.

    Raises
    ------
    BudgetError
        The system would refuse; the message names the limit of the process that is nearest, if there is one.

    Notes
    -----
    They are mapped and given back, which takes microseconds and touches nothing: so every kind of limit is met, of which the
    process can read only some.
    """
    needed = nbytes + SLACK_BYTES
    try:
        import mmap  # an extension, for which there may be no memory

        mmap.mmap(-1, needed, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (ImportError, OSError, MemoryError, OverflowError, ValueError) as error:  # the last: addresses
        raise shortage(needed, what, advice) from error


def shortage(needed: int, what: str, advice: str) -> BudgetError:
    """The error for ``needed`` bytes that the system did not grant: it names the limit of the process that is nearest."""
    limit = tightest_limit()
    if limit is None or limit.free_bytes >= needed:
        free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return BudgetError(what, needed, min(needed - 1, free_bytes), advice)
    return BudgetError(f"{what} under {limit.name}", needed, limit.free_bytes, f"{advice}, or raise that limit")


def stack_bytes() -> int:
    """Bytes that the system maps for the stack of a new thread."""
    most = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return _STACK_BYTES if most == resource.RLIM_INFINITY else most


def check_blas_room() -> None:
    """Refuse to load SciPy's BLAS where its threads would not get their buffers; asked until it is loaded."""
    if "scipy.linalg" not in sys.modules:
        _check_blas_room()


@cache
def _check_blas_room() -> None:
    threads = blas_threads_asked() or os.cpu_count() or 1
    advice = "compute on fewer cores (OPENBLAS_NUM_THREADS)"
    check_room(_LIBRARY_BYTES + threads * (_BUFFER_BYTES + stack_bytes()), "SciPy's BLAS", advice)


#: What the system's loader says where it gets no memory for a library.
_UNLOADED = ("map segment", "allocate memory", "memory protection", "static TLS", "shared object descriptor")


@contextmanager
def guarded_imports(*, blas: bool = True) -> Iterator[None]:
    """Import packages inside the block: memory that is refused for them is a ``BudgetError``, whatever they make of it.

    Parameters
    ----------
    blas : bool
        True if they load SciPy's BLAS, which asks without end for memory that it does not get: it is looked for before.

    Raises
    ------
    BudgetError
        The process may not map the memory for a package.
    """
    if blas:
        check_blas_room()
    try:
        yield
    except (ImportError, MemoryError, OSError, SystemError) as error:
        if isinstance(error, BudgetError | TierError) or not _lacks_memory(error):
            raise
        raise shortage(SLACK_BYTES, "memory for a package that is imported", "leave more memory to the process") from error


def _lacks_memory(error: BaseException | None) -> bool:
    """Tell whether an import has failed for lack of memory, by the error or by those behind it."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if isinstance(error, SystemError) and tightest_limit() is not None:  # of an extension that did not look
            return True
        if isinstance(error, ImportError) and any(words in str(error) for words in _UNLOADED):
            return True
        error = error.__cause__ or error.__context__
    return False


@final
class memory_errors_typed(AbstractContextManager[None]):
    """Raise memory that is refused inside the block as a ``BudgetError``; what the user's own code raises stays as it is."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, MemoryError | OSError):
            return
        if isinstance(error, BudgetError | TierError) or USERS_NOTE in getattr(error, "__notes__", ()):
            return
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            return
        advice = "give a smaller memory_budget, larger tiles (tile_size), or store="
        raise shortage(SLACK_BYTES, self._what, advice) from error
