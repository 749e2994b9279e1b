"""Bytes that workers give each other in steps: in memory that they share on one machine, of the host or of GPUs, else by Dask.

A worker gives the bytes of step t in the half ``t % 2`` of its memory. It writes there once all others have given step t - 1, by
when they have read step t - 2. Nothing of it passes through the scheduler.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.block_locks import BlockLocks
from ooc_chol.cluster.connection import distributed_package
from ooc_chol.cluster.worker_state import RUNS_REMEMBERED, this_worker
from ooc_chol.config import whole_pages
from ooc_chol.eigen.exchange import AbstractExchange, Window, WindowTier
from ooc_chol.errors import ClusterError
from ooc_chol.hardware.registry import device_kind
from ooc_chol.interfaces import AbstractCommonMemory, AbstractLocking, AbstractRegistrar, BlockIndex, DeviceBlock
from ooc_chol.memory.pages import allocate_aligned
from ooc_chol.memory.shared import SharedAddress, SharedMemory, is_possible
from ooc_chol.process.fork_safety import new_condition, new_lock

#: Bytes before the halves: the first eight count the steps that were given.
_HEAD: Final = 4096
#: In place of that count: this worker goes on no more.
_ENDED: Final = -1
#: Seconds between two looks at whether the others live, and seconds in which a step comes from one that lives.
LOOK_SECONDS, STEP_SECONDS = 0.2, 600.0
#: Looks at a count before each is followed by a pause, and the longest of these in seconds.
_SPINS, _LONGEST_PAUSE = 200, 1e-3
#: The name of our messages among those of a worker of Dask.
_OPERATION = "ooc_chol_exchange"


@final
class PeerLostError(ClusterError):
    """A worker that others need for a step has gone, or a step was cancelled: who asks places the rows anew."""


class Seat(NamedTuple):
    """Place at which others find what a worker gives."""

    address: str  #: Of the worker
    memory: SharedAddress | None
    process: tuple[int, int]  #: Its number, and when it began
    handle: bytes = b""  #: By which devices of others reach memory of its own; empty where it has none for them


@final
class Mailbox:
    """Messages of workers on other machines for one exchange, and word that it is over: Dask's thread puts them there."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self._messages: dict[tuple[int, int], Any] = {}
        self._failed = set[int]()
        self._changed = new_condition()

    def put(self, rank: int, step: int, data: Any) -> None:
        """Hand over the bytes of a step; none, and a negative step, from a worker that goes on no more."""
        with self._changed:
            if step < 0:
                self._failed.add(rank)
            else:
                self._messages[rank, step] = data
            self._changed.notify_all()

    def cancel(self) -> None:
        """Let nobody wait here any more."""
        with self._changed:
            self.is_cancelled = True
            self._changed.notify_all()

    def take(self, rank: int, step: int) -> Any:
        """The bytes of a step, once; None where they are not there after a while."""
        with self._changed:
            if (rank, step) not in self._messages and rank not in self._failed and not self.is_cancelled:
                self._changed.wait(LOOK_SECONDS / 2)
            return self._messages.pop((rank, step), None)

    def has_failed(self, rank: int) -> bool:
        """Tell whether a worker has said that it goes on no more."""
        return rank in self._failed


class Mailboxes:
    """The mailboxes of one worker, by the names of exchanges."""

    def __init__(self) -> None:
        self._open: dict[str, Mailbox] = {}
        self._ended: deque[str] = deque(maxlen=RUNS_REMEMBERED)
        self._lock = new_lock()

    def of(self, name: str) -> Mailbox:
        """The mailbox of an exchange, which whoever comes first makes; one that nobody looks at where that is over."""
        with self._lock:
            return Mailbox() if name in self._ended else self._open.setdefault(name, Mailbox())

    def close(self, name: str) -> None:
        """Let whoever waits end, and take no more messages."""
        with self._lock:
            self._ended.append(name)
            there = self._open.pop(name, None)
        if there is not None:
            there.cancel()


#: Outside of a cluster the process is the worker.
_ALONE = Mailboxes()
_OF_WORKERS: weakref.WeakKeyDictionary[Any, Mailboxes] = weakref.WeakKeyDictionary()
_LOCK = new_lock()


def mailboxes_of(worker: Any) -> Mailboxes:
    """The mailboxes of a worker, which receives messages from then on; several workers of one process have theirs each."""
    if worker is None:
        return _ALONE
    with _LOCK:
        if worker not in _OF_WORKERS:
            boxes = _OF_WORKERS[worker] = Mailboxes()

            def receive(name: str, rank: int, step: int, data: Any = None) -> None:
                boxes.of(name).put(rank, step, data)

            worker.handlers[_OPERATION] = receive
        return _OF_WORKERS[worker]


def cancel_exchange(name: str, dask_worker: Any) -> None:
    """Let whoever waits in an exchange at a worker end, now or later: what the caller runs on workers."""
    mailboxes_of(dask_worker).of(name).cancel()


class _Bytes:
    """Host memory of whole pages, which others may map where the system has such memory."""

    def __init__(self, nbytes: int) -> None:
        self.memory = SharedMemory.create(nbytes) if is_possible() else None
        self.data: NDArray[np.uint8] = allocate_aligned(nbytes) if self.memory is None else self.memory.bytes


class _Peer(ABC):
    """Another worker of an exchange, as this one sees it."""

    address: str
    memory: SharedMemory | None
    data: NDArray[np.uint8]  #: Its bytes, behind a head

    @abstractmethod
    def has_given(self, step: int) -> bool:
        """Tell whether the bytes of a step are there; ``PeerLostError`` from one that goes on no more."""

    def look(self) -> None:  # noqa: B027 - of a connection Dask tells
        """Raise ``PeerLostError`` where it has gone; called now and then while one waits."""

    def lost(self) -> PeerLostError:
        """Error that it goes on no more."""
        advice = "its rows are placed anew where workers are left"
        return PeerLostError(f"worker {self.address} goes on no more", advice, {self.address: "is gone, or has failed"})


@final
class _NearPeer(_Peer):
    """A worker of this machine, whose memory is mapped here."""

    def __init__(self, seat: Seat) -> None:
        self.address, self._process = seat.address, seat.process
        assert seat.memory is not None
        try:
            self.memory = SharedMemory.open(seat.memory)
        except ConnectionError:
            raise self.lost() from None
        self.data = self.memory.bytes
        self._count = self.data[:8].view(np.int64)

    def has_given(self, step: int) -> bool:
        count = int(self._count[0])
        if count == _ENDED:
            raise self.lost()
        return count > step

    def look(self) -> None:
        if process_begun(self._process[0]) != self._process[1]:
            raise self.lost()


@final
class _FarPeer(_Peer):
    """A worker of another machine, or of this process, whose messages come to a mailbox."""

    def __init__(self, seat: Seat, rank: int, mailbox: Mailbox, nbytes: int, half: int) -> None:
        self.address, self._rank, self._mailbox, self._half = seat.address, rank, mailbox, half
        room = _Bytes(nbytes)
        self.memory, self.data = room.memory, room.data
        self._sent: dict[int, Future[Any]] = {}  # by step

    def has_given(self, step: int) -> bool:
        given = self._mailbox.take(self._rank, step)
        if given is not None:
            first = _HEAD + step % 2 * self._half
            self.data[first : first + len(given)] = given
        elif self._mailbox.has_failed(self._rank):
            raise self.lost()
        return given is not None

    def send(self, worker: Any, message: dict[str, Any]) -> None:
        """Send bytes of a step, or word of the end."""
        data = message.pop("data", None)
        if data is not None:
            message["data"] = distributed_package().protocol.to_serialize(data)

        async def post() -> None:
            await getattr(worker.rpc(self.address), _OPERATION)(**message)

        self._sent[message["step"]] = asyncio.run_coroutine_threadsafe(post(), worker.loop.asyncio_loop)

    def has_got(self, step: int) -> bool:
        """Tell whether it has got all bytes of this worker up to a step; ``PeerLostError`` where the connection broke."""
        for number in [number for number in self._sent if number <= step]:
            if not self._sent[number].done():
                return False
            if self._sent.pop(number).exception() is not None:
                raise self.lost()
        return True

    def look(self) -> None:
        self.has_got(max(self._sent, default=0))


@final
class Exchange(AbstractExchange):
    """One worker's part of an exchange: :meth:`join` makes it one, and :meth:`close` ends it for all."""

    def __init__(self, name: str, rank: int, rows: Sequence[range], piece_bytes: int) -> None:
        self.name, self.rank, self.rows = name, rank, tuple(rows)
        self.piece_bytes = whole_pages(piece_bytes)
        self.step = 0
        self._nbytes = _HEAD + 2 * self.piece_bytes
        own = _Bytes(self._nbytes)
        self._memory, self._own = own.memory, own.data
        self._count = self._own[:8].view(np.int64)
        self._count[0] = 0
        self._worker = this_worker()
        self._mailbox = mailboxes_of(self._worker).of(name)
        self._peers: dict[int, _Peer] = {}
        self.tier = WindowTier(self._half)
        self._lent: AbstractCommonMemory | None = None
        self._mapped = dict[str, tuple[AbstractCommonMemory | None, ...]]()  # for each device, by rank; None for this one
        self._on_devices = dict[str, WindowTier]()

    def lend(self, device: str) -> AbstractCommonMemory | None:
        """Memory of a device for what this worker gives, if all map it; whoever asks keeps it as long as others may."""
        self._lent = device_kind(device).lend(device, 2 * self.piece_bytes)
        return self._lent

    def map(self, handles: Sequence[bytes], devices: Sequence[str]) -> bool:
        """Map what the others lend for each device of this worker; tells whether all of it is mapped."""
        for device in devices:
            kind = device_kind(device)
            found = tuple(None if rank == self.rank else kind.mapped(device, each) for rank, each in enumerate(handles))
            self._mapped[device] = found
            if found.count(None) > 1:
                return False
        return True

    def unmap(self) -> None:
        """Map nothing of the others' devices any more, from which nobody copies; a second call does nothing."""
        self._on_devices.clear()
        for found in self._mapped.values():
            for each in found:
                if each is not None:
                    each.close()
        self._mapped.clear()

    def use_devices(self) -> None:
        """Give by memory of devices from now on, which all have mapped."""
        assert self._lent is not None
        own = DeviceBlock(self._lent.device, self._lent.address)
        for device, found in self._mapped.items():
            places = tuple(own if each is None else DeviceBlock(device, each.address) for each in found)
            self._on_devices[device] = _DeviceTier(places, self.piece_bytes)

    def tier_of(self, device: str) -> WindowTier:
        return self._on_devices.get(device, self.tier)

    @property
    def seat(self) -> Seat:
        """Place at which the others find this worker."""
        address = None if self._memory is None else self._memory.address
        own = (os.getpid(), process_begun(os.getpid()))
        handle = b"" if self._lent is None else self._lent.handle
        return Seat("" if self._worker is None else self._worker.address, address, own, handle)

    def join(self, seats: Sequence[Seat], near: Sequence[bool], registrar: AbstractRegistrar | None = None) -> None:
        """Take a seat among others, in the order of ranks; ``near`` are those whose memory is mapped here."""
        for rank, (seat, is_near) in enumerate(zip(seats, near, strict=True)):
            if rank != self.rank:
                far = (rank, self._mailbox, self._nbytes, self.piece_bytes)
                self._peers[rank] = _NearPeer(seat) if is_near else _FarPeer(seat, *far)
        if registrar is not None and not self._on_devices:
            memories = [each for each in (self._memory, *(peer.memory for peer in self._peers.values())) if each is not None]
            self.tier = _LockedTier(self._half, BlockLocks(registrar, [(each, {}) for each in memories]))

    def _half(self, step: int, rank: int) -> NDArray[np.uint8]:
        """Bytes of a worker for a step."""
        data, first = self._own if rank == self.rank else self._peers[rank].data, _HEAD + step % 2 * self.piece_bytes
        return data[first : first + self.piece_bytes]

    def publish(self, nbytes: int) -> None:
        self._count[0] = self.step + 1
        given = self._half(self.step, self.rank)[:nbytes]
        for peer in self._far():
            peer.send(self._worker, self._message(self.step, given))

    def wait(self) -> None:
        for peer in self._peers.values():
            self._wait_for(peer)
        self.step += 1

    def _wait_for(self, peer: _Peer) -> None:
        """Wait until a worker has given this step, and has got what the next one overwrites."""
        since = looked = time.monotonic()
        spins, has_given = 0, False
        while not (has_given := has_given or peer.has_given(self.step)) or not _has_got(peer, self.step - 1):
            if self._mailbox.is_cancelled:
                raise PeerLostError(f"step {self.step} of an exchange was cancelled", "the call that made it has ended it")
            spins += 1
            if spins < _SPINS:
                continue
            time.sleep(min(_LONGEST_PAUSE, 1e-6 * (spins - _SPINS)))
            if (now := time.monotonic()) - looked > LOOK_SECONDS:
                looked = now
                peer.look()
                if now - since > STEP_SECONDS:
                    advice = "look at what holds it up, and call again"
                    told = {peer.address: f"has not given step {self.step}"}
                    raise PeerLostError(f"a worker gave nothing in {STEP_SECONDS:.0f} seconds", advice, told)

    def _far(self) -> list[_FarPeer]:
        return [peer for peer in self._peers.values() if isinstance(peer, _FarPeer)]

    def _message(self, step: int, data: NDArray[np.uint8] | None = None) -> dict[str, Any]:
        return {"name": self.name, "rank": self.rank, "step": step, "data": data}

    def close(self) -> None:
        """Tell the others that this worker goes on no more; a second call does nothing."""
        if self._count[0] == _ENDED:
            return
        self._count[0] = _ENDED
        for peer in self._far():
            with suppress(RuntimeError):  # of a loop that has ended
                peer.send(self._worker, self._message(_ENDED))
        mailboxes_of(self._worker).close(self.name)


def _has_got(peer: _Peer, step: int) -> bool:
    return not isinstance(peer, _FarPeer) or peer.has_got(step)


class _LockedTier(WindowTier):
    """Bytes that are page-locked for devices."""

    def __init__(self, memory: Any, locks: AbstractLocking) -> None:
        super().__init__(memory)
        self._locks = locks

    def locking(self) -> AbstractLocking:
        return self._locks


@final
class _DeviceTier(WindowTier):
    """Bytes of processes in memory of devices, which devices alone copy."""

    def __init__(self, places: Sequence[DeviceBlock], piece_bytes: int) -> None:
        self._places, self._piece_bytes = places, piece_bytes  # by rank

    def on_device(self, index: BlockIndex) -> DeviceBlock:
        window = Window(*index)
        device, address = self._places[window.rank]
        return DeviceBlock(device, address + window.turn % 2 * self._piece_bytes + window.first)

    def view(self, index: BlockIndex) -> NoReturn:
        raise TypeError("these bytes are in memory of devices, which copy them")


def process_begun(process: int) -> int:
    """Time at which a process began, in the system's ticks; 0 for one that has ended, and where the system does not tell."""
    try:
        with open(f"/proc/{process}/stat") as file:
            facts = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if facts[0] in "ZX" else int(facts[19])
