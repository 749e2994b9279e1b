"""Real devices, wrapped: every call that a driver may refuse is counted, and fails as CUDA's do.

An error comes at once, from the call that is refused, or later, from the stream: then whatever is behind it on that stream does
not happen, and whoever waits for an event there is told. A device that is lost refuses every call from then on, the ones that
clean up after it, too; but its threads end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.faults.injector import Injector
from tests.host.registrar import Registrar
from tests.inside.hardware import AbstractDeviceKind, registry
from tests.inside.interfaces import (
    AbstractArena,
    AbstractDevice,
    AbstractEvent,
    AbstractRegistrar,
    AbstractStream,
    AbstractTier,
    ArraySpec,
    BlockIndex,
    LockState,
    Tile,
    TileFunction,
)
from tests.inside.kernels import AbstractFlags, AbstractResidueKernels, AbstractSolveKernels, AbstractSurvey, AbstractTileNorms

#: What kernels make that enqueues work itself.
_ENQUEUES = (AbstractFlags, AbstractResidueKernels, AbstractSolveKernels, AbstractSurvey, AbstractTileNorms)


class DriverError(RuntimeError):
    """What the driver of a device raises: no error of this package, as that of CuPy is none."""


class WrappedEvent(AbstractEvent):
    """An event of the real device."""

    def __init__(self, real: AbstractEvent, injector: Injector) -> None:
        self.real, self._injector = real, injector

    def query(self) -> bool:
        self._injector.check("device:query")
        return self.real.query()

    def synchronize(self) -> None:
        self.real.synchronize()
        self._injector.check("device:event synchronize")

    def succeeded(self) -> bool:
        return self.real.succeeded()

    def time_ns(self) -> int:
        self._injector.check("device:event time")
        return self.real.time_ns()


class WrappedStream(AbstractStream):
    """A stream of the real device."""

    def __init__(self, real: Any, injector: Injector) -> None:
        self.real, self.name, self._injector = real, real.name, injector

    def wait(self, event: AbstractEvent) -> None:
        self._injector.check("device:event wait")
        self.real.wait(_real(event))

    def record(self) -> WrappedEvent:
        self._injector.check("device:event record")
        return WrappedEvent(self.real.record(), self._injector)

    def synchronize(self) -> None:
        self.real.synchronize()
        self._injector.check("device:stream synchronize")

    def fails_later(self, kind: str) -> bool:
        """Whether a call of that kind is one that fails on the stream; then its error is enqueued in its place."""
        error = self._injector.meets(f"stream:{kind}")
        if error is None:
            return False
        self.real.enqueue(functools.partial(_raise, error))
        return True


def _raise(error: BaseException) -> None:
    raise error


def _real(thing: Any) -> Any:
    """What is behind a wrapper."""
    return thing.real if isinstance(thing, WrappedEvent | WrappedStream | WrappedKernels) else thing


class WrappedKernels:
    """Kernels, or what they make: every call that is given a stream is a launch."""

    def __init__(self, real: Any, injector: Injector) -> None:
        self.real, self._injector = real, injector

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if isinstance(found, _ENQUEUES):
            return WrappedKernels(found, self._injector)
        return functools.partial(self._call, found) if callable(found) else found

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        stream = next((each for each in arguments if isinstance(each, WrappedStream)), None)
        if stream is not None:
            self._injector.check("device:kernel")
            if stream.fails_later("kernel"):
                return None
        made = function(*map(_real, arguments), **{name: _real(value) for name, value in options.items()})
        return WrappedKernels(made, self._injector) if isinstance(made, _ENQUEUES) else made


class WrappedDevice(AbstractDevice[Any]):
    """A device whose driver may refuse."""

    driver_errors = (DriverError,)

    def __init__(self, real: AbstractDevice[Any], injector: Injector) -> None:
        self.real, self.name, self._injector = real, real.name, injector
        self.nominal_flops_per_second = real.nominal_flops_per_second
        self.kernels = WrappedKernels(real.kernels, injector)

    def allocate(
        self, n_slots: int, slot_bytes: int, nb: int, arrays: Sequence[ArraySpec] = (), *, narrow_bytes: int = 0
    ) -> AbstractArena:
        self._injector.check("device:allocate")
        return self.real.allocate(n_slots, slot_bytes, nb, arrays, narrow_bytes=narrow_bytes)

    def activate(self) -> None:
        self._injector.check("device:activate")
        self.real.activate()

    def current(self) -> AbstractContextManager[object]:
        return self.real.current()

    def reserve_events(self, count: int) -> None:
        self._injector.check("device:reserve events")
        self.real.reserve_events(count)

    def take_back_events(self, events: Iterable[AbstractEvent]) -> None:
        self.real.take_back_events([_real(event) for event in events])

    def prepare(self, once: Callable[[], None]) -> None:
        self._injector.check("device:prepare")
        self.real.prepare(once)

    def create_stream(self, name: str, *, is_urgent: bool = False) -> WrappedStream:
        self._injector.check("device:create stream")
        return WrappedStream(self.real.create_stream(name, is_urgent=is_urgent), self._injector)

    def copy_in(self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, tile: Tile) -> None:
        if not self._fails("copy in", stream):
            self.real.copy_in(_real(stream), tier, index, tile)

    def copy_stored(self, stream: AbstractStream, tier: AbstractTier, index: BlockIndex, target: Tile) -> None:
        if not self._fails("copy stored", stream):
            self.real.copy_stored(_real(stream), tier, index, target)

    def copy_out(
        self, stream: AbstractStream, tile: Tile, tier: AbstractTier, index: BlockIndex, *, largest: int | None = None
    ) -> None:
        if not self._fails("copy out", stream):
            self.real.copy_out(_real(stream), tile, tier, index, largest=largest)

    def wrote(self, tier: AbstractTier, index: BlockIndex, event: AbstractEvent) -> bool:
        return self.real.wrote(tier, index, _real(event))

    def generate(self, stream: AbstractStream, function: TileFunction, rows: range, cols: range, tile: Tile) -> None:
        if not self._fails("generate", stream):
            self.real.generate(_real(stream), function, rows, cols, tile)

    def copy_between(self, stream: AbstractStream, source: Tile, target: Tile) -> None:
        if not self._fails("copy between", stream):
            self.real.copy_between(_real(stream), source, target)

    def _fails(self, kind: str, stream: AbstractStream) -> bool:
        """Whether a copy fails on its stream; one that is refused raises."""
        self._injector.check(f"device:{kind}")
        assert isinstance(stream, WrappedStream)
        return stream.fails_later(kind)

    def notify(self, event: AbstractEvent, callback: Callable[[BaseException | None], None]) -> None:
        self._injector.check("device:notify")
        self.real.notify(_real(event), callback)

    def failure(self) -> BaseException | None:
        return self.real.failure()

    def abort(self) -> None:
        self.real.abort()

    def synchronize(self) -> None:
        self.real.synchronize()
        self._injector.check("device:synchronize")

    def close(self) -> None:
        self.real.close()
        self._injector.check("device:close")


class WrappedRegistrar(Registrar):
    """What page-locks for a device whose driver may refuse."""

    def __init__(self, injector: Injector) -> None:
        super().__init__()
        self._injector = injector

    def register(self, address: int, nbytes: int) -> LockState:
        self._injector.check("lock:register")
        return super().register(address, nbytes)


class WrappedKind:
    """A kind of device, each of which is opened wrapped, and for which host memory is page-locked."""

    def __init__(self, real: AbstractDeviceKind, injector: Injector) -> None:
        self.real, self._injector = real, injector
        self.locks = WrappedRegistrar(injector)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    @property
    def driver_errors(self) -> tuple[type[Exception], ...]:
        return WrappedDevice.driver_errors

    def registrar(self, name: str) -> AbstractRegistrar:
        return self.locks

    def open(self, name: str, kernels: Any) -> WrappedDevice:
        self._injector.check("device:open")
        return WrappedDevice(self.real.open(name, kernels), self._injector)


@contextmanager
def wrapped_hosts(injector: Injector) -> Iterator[WrappedKind]:
    """Let every host device that is opened inside the block be a wrapped one."""
    name = registry.HOST.name
    kind = WrappedKind(registry._BY_NAME[name], injector)
    registry._BY_NAME[name] = kind  # type: ignore[assignment]
    try:
        yield kind
    finally:
        registry._BY_NAME[name] = kind.real
