"""Refusals of a driver as errors of ours, which say on which device and at which step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ooc_chol.errors import DeviceError
from ooc_chol.interfaces import AnyDevice


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
