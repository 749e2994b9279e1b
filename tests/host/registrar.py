"""What page-locks nothing and keeps a list: for tests of memory that is locked in pieces, on machines without a GPU."""

from __future__ import annotations

import threading
import time

import numpy as np

from ooc_chol import HostMemory
from tests.inside.interfaces import AbstractRegistrar, LockState

MIB = 1 << 20


class Registrar(AbstractRegistrar):
    """Locks nothing, and writes down what it is asked for; as a driver, it minds what overlaps, and what was not locked."""

    def __init__(self, *, refuses=lambda number: False, seconds: float = 0.0) -> None:
        self.locked: dict[int, int] = {}
        self.calls: list[tuple[str, int]] = []
        self.times: list[tuple[float, float]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: BaseException | None = None
        self._refuses, self._seconds = refuses, seconds

    def register(self, address: int, nbytes: int) -> LockState:
        began = time.monotonic()
        self.gate.wait()
        if self.error is not None:
            raise self.error
        time.sleep(self._seconds)
        self.times.append((began, time.monotonic()))
        self.calls.append(("register", address))
        assert not any(low < address + nbytes and address < high for low, high in self.locked.items()), "locked twice"
        if self._refuses(len(self.times) - 1):
            return LockState.REFUSED
        self.locked[address] = address + nbytes
        return LockState.LOCKED

    def unregister(self, address: int) -> None:
        self.calls.append(("unregister", address))
        del self.locked[address]  # an error for what is not locked, as of the driver

    @property
    def registered(self) -> list[int]:
        return [address for what, address in self.calls if what == "register"]


class User:
    """Somebody who takes memory."""


def taken(memory: HostMemory, user: object, tiles: int, registrar: Registrar) -> np.ndarray:
    """Memory of so many tiles of 1 MiB, all of them locked; given back, as by a factor that is closed."""
    raw = memory.take(user, tiles * MIB)
    memory.lock(registrar, tiles * MIB, ())
    locks, base = memory.locking, raw.ctypes.data
    assert locks is not None
    assert all(locks.holds(base + at, base + at + MIB) for at in range(0, tiles * MIB, MIB))
    memory.give_back()
    return raw
