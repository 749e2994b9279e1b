"""How a run ends, whether it is complete, fails or is interrupted: no thread and no memory of a device is left."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from ooc_chol.errors import DeviceError
from ooc_chol.interfaces import AnyDevice
from ooc_chol.process.threads import OwnThread, wait_out


def abort_all(devices: Sequence[AnyDevice]) -> None:
    """Drop, on all devices, the operations that have not started."""
    for device in devices:
        device.abort()


def close_when_forgotten(owner: object, stack: ExitStack) -> None:
    """Close ``stack`` once nobody holds its owner any more, or at the end of the process, while threads still run.

    Nothing happens where the owner has closed it before, or in another process.
    """
    weakref.finalize(owner, _close_in_process, stack, os.getpid())


def _close_in_process(stack: ExitStack, process: int) -> None:
    if process == os.getpid():
        stack.close()


@contextmanager
def devices_closed(
    devices: Sequence[AnyDevice], threads: Sequence[OwnThread], stop: Callable[[], None] | None = None
) -> Iterator[None]:
    """Close the devices at the end of the block, which waits for the threads itself unless it raises."""
    # The order is what lets everybody end: 1. Nothing new starts on any stream. 2. What runs is over, or is left alone inside the
    # user's code; events are complete, with errors. 3. So a thread that waited for one goes on, and ends. 4. What it had enqueued
    # is over. 5. Nobody uses another device's memory: they close. An interrupt may cut one short anywhere: the others are done
    # nevertheless, and then all again.
    is_complete = False

    def finish() -> None:
        with ExitStack() as stack:
            for device in devices:
                stack.callback(device.close)
            for device in devices:
                stack.callback(device.synchronize)  # another device may still copy from its memory
            stack.callback(wait_out, threads)
            if not is_complete:
                for device in devices:
                    stack.callback(device.synchronize)
                stack.callback(stop or (lambda: abort_all(devices)))

    try:
        with driver_errors_typed(devices, "its work"):
            yield
        is_complete = True
    finally:
        try:
            finish()
        except BaseException as error:
            with suppress(Exception):  # an interrupt may have cut the first one short; what a lost device says again is known
                finish()
            # A device that is lost refuses to be closed, too: what went wrong first goes on, and is to be seen.
            if is_complete or not isinstance(error, Exception):
                if (found := typed(error, devices, lambda: "the end of its work")) is not error:
                    raise found from error
                raise


def typed(error: BaseException, devices: Sequence[AnyDevice], step: Callable[[], str]) -> BaseException:
    """The error to raise for ``error``: itself, unless it is one of a driver of these devices."""
    device = next((device for device in devices if isinstance(error, device.driver_errors)), None)
    if device is None:
        return error
    found = DeviceError(device.name, step(), str(error) or type(error).__name__)
    found.__cause__ = error
    return found


@contextmanager
def driver_errors_typed(devices: Sequence[AnyDevice], step: str) -> Iterator[None]:
    """Raise a :class:`~ooc_chol.errors.DeviceError` for what a driver of these devices raises inside the block."""
    try:
        yield
    except Exception as error:
        if (found := typed(error, devices, lambda: step)) is not error:
            raise found from error
        raise
