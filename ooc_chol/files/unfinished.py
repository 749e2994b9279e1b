"""Files that are being written: made under a lock, known for ours, and durable with their names."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import NamedTuple

from ooc_chol.errors import TierError
from ooc_chol.files.lock_holder import lock_holder
from ooc_chol.files.outputs import create_new
from ooc_chol.files.positional_io import read_up_to

#: What a file system answers that does not have locks, or no flushing of folders.
_CANNOT = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)


class Unfinished(NamedTuple):
    """Files of one kind while they are written."""

    mark: bytes  #: First bytes of each, once it has any
    what: str  #: What such a file becomes, such as ``"factor"``
    opener: str  #: What opens it once it is complete, in words
    written: str = "file"  #: What a run that holds the lock is writing


def create_locked(path: str, mode: int | None, kind: Unfinished) -> int:
    """Create ``path`` with these permissions and lock it against other runs; what a killed run left there is removed first."""
    while True:
        try:
            descriptor = create_new(path, mode)
        except FileExistsError:
            _remove_unfinished(path, kind)
            continue
        except OSError as error:
            raise TierError(
                f"{path}: cannot create the file: {error.strerror}; check that its folder exists and is writable"
            ) from error
        try:
            if lock(descriptor, path, kind):
                if mode is not None:
                    os.fchmod(descriptor, mode)
                return descriptor
        except BaseException:
            forget_created(descriptor, path)
            raise
        os.close(descriptor)


def forget_created(descriptor: int, path: str) -> None:
    """Close and remove a file that was created just now, in behalf of a run that goes no further; unless another has its name."""
    with suppress(OSError):  # what went wrong first is to be seen
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            os.unlink(path)
    with suppress(OSError):
        os.close(descriptor)


def open_locked(path: str, kind: Unfinished) -> int:
    """Open what a run that was ended left at ``path``, for reading and writing, and lock it against other runs."""
    descriptor = _opened(path, kind)
    try:
        if not lock(descriptor, path, kind):
            raise FileNotFoundError(errno.ENOENT, "another run has just completed or removed it", path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _in_the_way(path, "no ordinary file", kind)
    except BaseException:
        with suppress(OSError):  # what went wrong first is to be seen
            os.close(descriptor)
        raise
    return descriptor


def _opened(path: str, kind: Unfinished) -> int:
    """Open what has the name of an unfinished file: neither through a link, nor waiting for the other end of a FIFO."""
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _in_the_way(path, "a symbolic link" if os.path.islink(path) else str(error.strerror), kind) from error


def _remove_unfinished(path: str, kind: Unfinished) -> None:
    """Remove what a killed run left at ``path``; refuse what no run can have left there, and what a run is writing."""
    try:
        descriptor = _opened(path, kind)
    except FileNotFoundError:
        return
    try:
        if not lock(descriptor, path, kind):
            return
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or read_up_to(descriptor, len(kind.mark), 0) not in (
            b"",
            kind.mark,
        ):
            raise _in_the_way(path, "no file of ooc_chol", kind)
        os.unlink(path)
    finally:
        os.close(descriptor)


def _in_the_way(path: str, what: str, kind: Unfinished) -> TierError:
    """The error for something strange that has the name of the unfinished file."""
    return TierError(
        f"{path}: the {kind.what} has this name until it is complete, but something else is there ({what}); remove it, or "
        f"choose another name for the {kind.what}"
    )


def lock(descriptor: int, path: str, kind: Unfinished) -> bool:
    """Lock the open file; False when ``path`` no longer names it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        who = f" (process {holder})" if (holder := lock_holder(descriptor)) else ""
        raise TierError(
            f"{path}: another run is writing this {kind.written}{who}; wait for it, or choose another name"
        ) from error
    except OSError as error:
        if error.errno not in _CANNOT:  # a file system without locks only loses this guard
            raise TierError(f"{path}: cannot lock the file: {error.strerror}; check the disk") from error
    # Between our open and our lock: 1. the other run completes, 2. it renames this very file, 3. it closes it. Emptying it then
    # would destroy its finished file, so the name must still lead to the file that we locked.
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def sync_directory(path: str, kind: Unfinished) -> None:
    """Make the name of a file in its folder durable."""
    try:
        descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:  # a file system that cannot flush folders orders renames itself
            raise TierError(
                f"{path}: the {kind.what} is complete and {kind.opener} opens it, but its folder could not be flushed: "
                f"{error.strerror}; a power failure now may take the name away: check the disk"
            ) from error
