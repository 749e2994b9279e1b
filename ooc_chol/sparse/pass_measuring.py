"""Measuring what a device does in a pass over packed blocks: with the kernels, the copies and the blocks of products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ooc_chol.hardware.rates_file import check_writable
from ooc_chol.hardware.registry import device_kind, resolve_devices
from ooc_chol.interfaces import AbstractStream, ArraySpec, Tile
from ooc_chol.kernels.host.blas import host_threads
from ooc_chol.kernels.interfaces.products import ProductDevice
from ooc_chol.kernels.registry import open_product_device
from ooc_chol.memory.blocks import BlockMemory
from ooc_chol.precision.triples import Precision
from ooc_chol.runtime.passes import device_for_a_pass, finish
from ooc_chol.sparse.panels import bring_panel
from ooc_chol.sparse.pass_rates import PassRates, store_pass_rates
from ooc_chol.tasks.row_blocks import RowBlock, ValueKind
from ooc_chol.tasks.work_groups import work_groups

#: Columns of the panel: a row of float32 is 32 bytes.
_COLUMNS = 8
#: Entries of a row of the block that is multiplied.
_ROW_ENTRIES = 32
#: Products without entries that are timed together, and repeats of everything else, of which the fastest counts.
_LAUNCHES, _REPEATS = 200, 5


class _Sizes(NamedTuple):
    """How much is measured: far more than caches hold."""

    entries: int  #: Of the block
    rows: int  #: Of X, from which rows are gathered


#: For GPUs and for the host: blocks of 256 and 16 MiB, vectors of 1 GiB and 64 MiB, or as much less as quick ones take.
_GPU, _HOST, _QUICK = _Sizes(1 << 26, 1 << 25), _Sizes(1 << 22, 1 << 21), _Sizes(1 << 18, 1 << 17)


def measure_pass_rates(devices: str | Sequence[str] | int | None = None, *, quick: bool = False) -> dict[str, PassRates]:
    """Measure link, memory, gathers and launches of devices, one after the other, and keep them for later plans.

    Parameters
    ----------
    devices : str, sequence of str, or int, optional
        Devices as for :func:`ooc_chol.multiply`; one host device is measured, whose cores all of them share.
    quick : bool
        Measure with data that caches hold: for trying it out.

    Returns
    -------
    dict of str to PassRates
        Rates by names of devices.

    Raises
    ------
    ValueError
        There are several host devices, or there is no such device.
    BudgetError
        A device, or the host, has no room for what is measured: 2.5 GiB on a GPU.
    OSError
        The folder of rates cannot be written.

    Examples
    --------
    >>> import ooc_chol as oc
    >>> found = oc.rates.measure_pass_rates("host:0")  # doctest: +SKIP
    >>> found["host:0"].launch < 1e-3  # doctest: +SKIP
    True
    """
    names = resolve_devices(devices)
    if len(names) > 1 and device_kind(names[0]).shares_processor:
        raise ValueError(f"devices is {list(names)}; host devices share the host's cores, so measure one of them")
    check_writable()
    found = {}
    for name in names:
        sizes = _QUICK if quick else _HOST if device_kind(name).is_in_host_memory else _GPU
        found[name] = _measured(name, sizes)
        store_pass_rates(name, found[name])
    return found


def _measured(name: str, sizes: _Sizes) -> PassRates:
    """Rates of one device."""
    blocks = _blocks(sizes)
    threads = host_threads(1) if device_kind(name).is_in_host_memory else 1
    with (
        _stored(name, blocks) as tier,
        device_for_a_pass(
            lambda: open_product_device(name, Precision.FFF, _COLUMNS, blocks[0][0].segment_places, threads), nullcontext()
        ) as device,
    ):
        return _Bench(device, [block for block, _ in blocks], tier, sizes).rates()


def _blocks(sizes: _Sizes) -> list[tuple[RowBlock, NDArray[np.uint8]]]:
    """One that gathers at random from all of X, and one of a row without entries; with their bytes."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, sizes.rows, sizes.entries, dtype=np.int32)
    found = []
    for starts, part in (
        (np.arange(0, sizes.entries + 1, _ROW_ENTRIES, dtype=np.uint32), columns),
        (np.zeros(2, np.uint32), columns[:0]),
    ):
        groups, segments = work_groups(starts)
        block = RowBlock(0, len(starts) - 1, len(part), len(groups) - 1, segments, ValueKind.PATTERN, 1.0, 0)
        data = np.zeros(block.nbytes, np.uint8)
        parts = block.parts(data)
        parts.starts[:], parts.groups[:], parts.columns[:] = starts, groups, part
        found.append((block, data))
    return found


@contextmanager
def _stored(name: str, blocks: Sequence[tuple[RowBlock, NDArray[np.uint8]]]) -> Iterator[BlockMemory]:
    """The blocks in host memory, page-locked for a GPU."""
    with closing(BlockMemory(sum(block.nbytes + 4096 for block, _ in blocks))) as tier:
        for block, data in blocks:
            room = tier.room(block.nbytes)
            room[...] = data
            tier.put(room)
        if (registrar := device_kind(name).registrar(name)) is not None:
            tier.lock(registrar, [(0, 0), (1, 0)])
        yield tier


class _Bench:
    """The device's memory, and what is timed there."""

    def __init__(self, device: ProductDevice, blocks: Sequence[RowBlock], tier: BlockMemory, sizes: _Sizes) -> None:
        self._device, self._blocks, self._tier = device, blocks, tier
        single = Precision.FFF.storage
        specs = [
            ArraySpec(np.dtype(np.uint8), (sum(block.nbytes for block in blocks),)),
            ArraySpec(single, (sizes.rows, _COLUMNS)),
            ArraySpec(single, (blocks[0].n_rows, _COLUMNS)),
        ]
        arena = device.allocate(0, blocks[0].nbytes, sizes.rows, specs)
        data, self._x, self._y = arena.arrays
        self._data = [data[: blocks[0].nbytes], data[blocks[0].nbytes :]]
        self._stream: AbstractStream = device.create_stream("compute")

    def rates(self) -> PassRates:
        """Copy, gather, launch."""
        largest = self._blocks[0]
        self._device.copy_stored(self._stream, self._tier, (1, 0), self._data[1])
        link = self._seconds(lambda: self._device.copy_stored(self._stream, self._tier, (0, 0), self._data[0]))
        half = len(self._x) // 2
        self._fill()
        copied = self._seconds(lambda: self._device.copy_between(self._stream, self._x[:half], self._x[half:]))
        wide = self._seconds(lambda: self._multiply(0, self._x, self._y))
        numbers, sums = self._x.reshape(-1)[: len(self._x)].reshape(-1, 1), self._y.reshape(-1)[: largest.n_rows].reshape(-1, 1)
        self._multiply(1, numbers, sums[:1])  # compiled before it is captured
        narrow = self._seconds(lambda: self._multiply(0, numbers, sums))
        many = self._device.captured(self._stream, lambda: self._multiply(1, numbers, sums[:1], times=_LAUNCHES))
        launch = self._seconds(many) / _LAUNCHES
        finish(self._device, [self._stream])
        return PassRates(
            link=largest.nbytes / link,
            memory=half * _COLUMNS * self._x.dtype.itemsize / copied,
            gathers=largest.n_entries / wide,
            single_gathers=largest.n_entries / narrow,
            launch=launch,
        )

    def _fill(self) -> None:
        """Ones, as what memory holds by chance may be numbers that take longer."""
        ones = np.broadcast_to(np.ones(1, self._x.dtype), self._x.shape)
        bring_panel(self._device, self._stream, ones, 0, self._x, self._blocks[0].nbytes)

    def _multiply(self, number: int, x: Tile, y: Tile, *, times: int = 1) -> None:
        self._device.kernels.prepare(self._stream, x)
        for _ in range(times):
            self._device.kernels.multiply(self._stream, self._blocks[number], self._data[number], x, y)

    def _seconds(self, call: Callable[[], Any]) -> float:
        """Fastest of some calls behind one that warms up, by events of the stream."""
        found = []
        for _ in range(_REPEATS + 1):
            start = self._stream.record()
            call()
            end = self._stream.record()
            end.synchronize()
            found.append((end.time_ns() - start.time_ns()) / 1e9)
        return max(min(found[1:]), 1e-9)
