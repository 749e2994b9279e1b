"""The devices of this machine: what their names mean, and opening one with kernels of the caller's choice."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.config import parse_devices
from ooc_chol.errors import DeviceError, OocCholError
from ooc_chol.hardware.kinds import AbstractDeviceKind, CudaKind, HostKind
from ooc_chol.interfaces import AbstractDevice, AbstractDeviceMemory, KernelSetT
from ooc_chol.memory.sources import register_source
from ooc_chol.memory.sources.base import AbstractSource

HOST, CUDA = HostKind(), CudaKind()
#: Every kind of device. Where no device is named, those of the first kind that the machine has are taken.
KINDS: tuple[AbstractDeviceKind, ...] = (CUDA, HOST)
_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_DLPACK = {memory: kind for kind in KINDS for memory in kind.dlpack_types}
#: Words for all that is used of a kind where nothing is said.
_WORDS: dict[str, AbstractDeviceKind] = {"host": HOST, "cpu": HOST, "cuda": CUDA, "gpu": CUDA}


def device_kind(name: str) -> AbstractDeviceKind:
    """The kind of a device, by its name alone."""
    return _BY_NAME.get(name.partition(":")[0], HOST)


def is_here(name: str) -> bool:
    """Tell whether a device of that name can be opened on this machine."""
    kind = device_kind(name)
    return kind.is_in_host_memory or name in kind.names()


def resolve_devices(devices: str | Sequence[str] | int | None, *, must_exist: bool = True) -> tuple[str, ...]:
    """Device names meant by ``devices``: names or words of one kind, the number of devices to take, or None for the default.

    Text is read as on a command line, with commas between names; words are ``"host"`` or ``"cpu"``, the host as one device, and
    ``"cuda"`` or ``"gpu"``, every visible GPU.

    Parameters
    ----------
    devices : str, sequence of str, int, or None
        As :func:`ooc_chol.cholesky` takes them.
    must_exist : bool
        True if this machine must have them; devices of another machine are planned for.

    Returns
    -------
    tuple of str
        Names such as ``"host:0"`` and ``"cuda:1"``.

    Raises
    ------
    ValueError, TypeError
        It names no devices, or none that are there.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> oc.toolbox.resolve_devices("host:0, host:1")
    ('host:0', 'host:1')
    """
    if isinstance(devices, np.integer):
        devices = int(devices)
    if isinstance(devices, bool) or not isinstance(devices, str | int | Sequence | None):
        raise TypeError(f"devices is a {type(devices).__name__}; give a name such as 'host:0', a list of names, a count, or None")
    if devices is None:
        return _first_names()
    if isinstance(devices, str):
        devices = parse_devices(devices)
    if isinstance(devices, int):
        names = next(names for kind in KINDS if (names := kind.names()))
        if not 1 <= devices <= len(names):
            raise ValueError(f"devices is {devices}; there are {names[0]} to {names[-1]}, so give a count from 1 to {len(names)}")
        return names[:devices]
    asked = tuple(name for word in devices for name in _meant(word, must_exist))
    for name in asked:
        _check_name(name, must_exist)
    if not asked or len(set(asked)) < len(asked) or len({device_kind(name) for name in asked}) > 1:
        raise ValueError(f"devices is {list(asked)!s:.200}; give at least one name, none twice, all of one kind")
    return asked


def _first_names() -> tuple[str, ...]:
    """The devices that are used where none is named: the host has some."""
    for kind in KINDS:
        if names := kind.default_names():
            break
    return names


def _meant(word: str, must_exist: bool) -> tuple[str, ...]:
    """The names that a word stands for; a name stands for itself."""
    kind = _WORDS.get(word) if isinstance(word, str) else None
    if kind is None:
        return (word,)
    names = kind.default_names()
    return names or ((f"{kind.name}:0",) if not must_exist else (word,))  # no such device here: planned for, or refused


def _check_name(name: str, must_exist: bool) -> None:
    """Refuse a name that no device has."""
    kind = _WORDS.get(name, device_kind(name)) if isinstance(name, str) else HOST
    if name in kind.names():
        return
    is_elsewhere = isinstance(name, str) and (kind.may_be_elsewhere(name) or name in _WORDS)
    if is_elsewhere and not must_exist:
        return
    there = ", ".join(filter(None, (each.choice() for each in KINDS)))
    why = f" ({problem})" if is_elsewhere and (problem := kind.problem()) else ""
    raise ValueError(f"there is no device {name!r:.80}{why}; there are {there}")


def default_budget(names: Sequence[str]) -> int:
    """Bytes of memory budget per device when the user gives none."""
    return device_kind(names[0]).default_budget(names)


def memory_info(name: str) -> tuple[int, int]:
    """Free and total bytes of a device's memory."""
    return device_kind(name).memory(name)


def page_locked(
    names: Sequence[str], *, fresh: NDArray[Any] | None = None, filled: Sequence[NDArray[Any] | None] = ()
) -> AbstractContextManager[None]:
    """Page-lock host memory for a run on these devices, where that speeds up copies."""
    return device_kind(names[0]).page_locked(fresh, filled)


def keep_on_device(name: str, nbytes: int) -> AbstractDeviceMemory:
    """Allocate memory of a device for what stays there."""
    return device_kind(name).keep(name, nbytes)


def open_device(name: str, kernels: KernelSetT) -> AbstractDevice[KernelSetT]:
    """Open the device of that name with these kernels, for one run."""
    with driver_errors_typed(name, "its opening"):
        return device_kind(name).open(name, kernels)


@final
class driver_errors_typed(AbstractContextManager[None]):
    """Raise a :class:`DeviceError` for what the driver of a device, or a library of it, raises inside the block."""

    def __init__(self, name: str, step: str) -> None:
        self._name, self._step = name, step

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, OocCholError):
            return
        if isinstance(error, device_kind(self._name).driver_errors):
            raise DeviceError(self._name, self._step, str(error) or type(error).__name__) from error


@register_source
def _by_dlpack(a: Any) -> AbstractSource | None:
    """The source of what hands its memory over by DLPack, on the host or on a GPU; None for anything else."""
    handed = handed_over(a)
    return None if handed is None else handed[0].array_source(handed[1])


def handed_over(a: Any) -> tuple[AbstractDeviceKind, Any] | None:
    """The array, of NumPy or CuPy, of what hands its memory over by DLPack, and the kind of its device; else None."""
    device = getattr(a, "__dlpack_device__", None)
    if device is None or isinstance(a, np.ndarray):
        return None
    try:
        memory = device()[0]
        kind = _BY_DLPACK.get(memory, HOST)
        if (problem := kind.problem()) is not None:
            raise TypeError(f"the {_type_of(a)} lies in a device's memory, but {problem}; or pass a copy in the host's memory")
        array = kind.from_dlpack(a)
    except (BufferError, RuntimeError) as error:
        advice = "detach it, convert it to float64, gather it on one device, or pass np.asarray(A)"
        raise TypeError(f"the {_type_of(a)} cannot be handed over by DLPack ({error}); {advice}") from error
    return kind, array


def _type_of(a: Any) -> str:
    """The full name of an object's type."""
    return f"{type(a).__module__}.{type(a).__qualname__}"
