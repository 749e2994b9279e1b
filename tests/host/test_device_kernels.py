"""A device takes kernels of any kind: it knows the room that they need, and when they end."""

from __future__ import annotations

from contextlib import closing
from ctypes import memmove, memset
from typing import final

import numpy as np
import pytest

from ooc_chol.errors import BudgetError
from tests.inside.hardware import HOST, KINDS, HostStream, device_kind, open_device
from tests.inside.interfaces import AbstractDeviceKernels
from tests.inside.kernels import kind_of


@final
class Reversal(AbstractDeviceKernels):
    """Kernels that reverse bytes through their workspace, and know nothing of tiles."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.workspace, self.closed = nbytes, 0, 0

    def workspace_bytes(self, nb: int) -> int:
        return self.nbytes

    def bind(self, nb: int, workspace: int) -> None:
        self.workspace = workspace
        memset(workspace, 0xAB, self.nbytes)

    def close(self) -> None:
        self.closed += 1

    def reverse(self, stream: HostStream, data: np.ndarray) -> None:
        def run() -> None:
            memmove(self.workspace, data.ctypes.data, data.nbytes)
            scratch = (np.ctypeslib.ctypes.c_uint8 * data.nbytes).from_address(self.workspace)
            data[:] = np.frombuffer(scratch, dtype=np.uint8)[::-1]

        stream.enqueue(run)


def test_kernels_work_in_a_workspace_beside_the_slots():
    kernels = Reversal(4096)
    with closing(open_device("host:0", kernels)) as device:
        arena = device.allocate(3, 4096, 1)
        slots = [arena.tile(slot, (1, 4096), "uint8")[0] for slot in range(3)]
        for slot in slots:
            slot[:] = np.arange(4096) % 251
        assert all(not 0 <= kernels.workspace - slot.ctypes.data < slot.nbytes for slot in slots)
        stream = device.create_stream("reverse")
        device.kernels.reverse(stream, slots[1])
        stream.synchronize()
        assert np.array_equal(slots[1], slots[0][::-1]) and np.array_equal(slots[2], slots[0])
    assert kernels.closed


def test_the_workspace_counts_as_memory_of_the_arena():
    with closing(open_device("host:0", Reversal(1 << 60))) as device, pytest.raises(BudgetError) as caught:
        device.allocate(1, 4096, 1)
    assert caught.value.needed_bytes == (1 << 60) + 4096


def test_every_kind_of_device_has_kernels():
    assert {kind_of(f"{kind.name}:0").name for kind in KINDS} == {kind.name for kind in KINDS}
    assert all(device_kind(f"{kind.name}:3") is kind for kind in KINDS)
    assert device_kind("of no kind") is HOST


def test_stored_tiles_are_widened_where_they_do_not_lie_in_host_memory():
    for kind in KINDS:
        assert kind_of(f"{kind.name}:0").widens_stored is not kind.is_in_host_memory
