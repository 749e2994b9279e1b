"""Devices: memory that computes. To add a kind, subclass :class:`ooc_chol.interfaces.AbstractDevice`."""

from __future__ import annotations

from collections.abc import Sequence

from ooc_chol.devices.host import free_host_bytes

#: Largest number of host devices; more workers than cores is allowed, as tests do, but helps nobody.
HOST_DEVICES = 16


def available_devices() -> tuple[str, ...]:
    """Names of all devices that can be asked for."""
    return tuple(f"host:{number}" for number in range(HOST_DEVICES))


def resolve_devices(devices: str | Sequence[str] | int | None) -> tuple[str, ...]:
    """Device names meant by ``devices``.

    Parameters
    ----------
    devices : str, sequence of str, int or None
        A name, names, a count, or None for the default device.

    Returns
    -------
    tuple of str
        At least one name, none twice.

    Raises
    ------
    ValueError
        There is no such device; the text says what there is.
    TypeError
        ``devices`` is something else.
    """
    if devices is None:
        return ("host:0",)
    if isinstance(devices, bool) or not isinstance(devices, str | int | Sequence):
        raise TypeError(f"devices is a {type(devices).__name__}; give a name such as 'host:0', a list of names, a count, or None")
    if isinstance(devices, int):
        if not 1 <= devices <= HOST_DEVICES:
            raise ValueError(f"devices is {devices}; give a count from 1 to {HOST_DEVICES}")
        return available_devices()[:devices]
    names = (devices,) if isinstance(devices, str) else tuple(devices)
    for name in names:
        if name not in available_devices():
            raise ValueError(
                f"there is no device {name!r}; there are host:0 to host:{HOST_DEVICES - 1} (this version has no CUDA device)"
            )
    if not names or len(set(names)) < len(names):
        raise ValueError(f"devices is {list(names)}; give at least one name, and none twice")
    return names


def default_budget(names: Sequence[str]) -> int:
    """Bytes of memory budget per device when the user gives none: half of what is free, shared by the host devices."""
    return max(1 << 20, free_host_bytes() // (2 * len(names)))
