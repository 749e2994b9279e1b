"""Cases of a benchmark, as plain data, and the other libraries' factorizations beside them."""

from __future__ import annotations

from dataclasses import dataclass

from ooc_chol.config import parse_bytes
from ooc_chol.errors import BudgetError
from ooc_chol.hardware.registry import memory_info, resolve_devices

#: How FP64 products may be computed.
ENGINES = ("native", "residue", "auto")
#: Where A may come from.
SOURCES = ("device-function", "host-array")
#: Libraries that factor beside us.
PEERS = ("cusolver", "cusolvermg", "torch", "magma", "scipy")
#: Largest order at which one run is discarded by default, to warm up: longer runs are little longer the first time.
WARM_UP_ORDER = 65536
#: Share of free host memory that A and L may take together.
HOST_SHARE = 0.95


@dataclass(frozen=True)
class Peer:
    """Another library's factorization of the same covariance, at an order of its own."""

    name: str  #: One of :data:`PEERS`
    n: int

    def __post_init__(self) -> None:
        if self.name not in PEERS:
            raise ValueError(f"there is no peer {self.name!r}; there are {', '.join(PEERS)}")
        if self.n < 1:
            raise ValueError(f"the order of peer {self.name} is {self.n}, but a matrix has at least 1 row")

    @classmethod
    def parse(cls, text: str) -> Peer:
        """The peer meant by ``"cusolver:122880"``."""
        name, colon, order = text.partition(":")
        if not colon or not order.isdigit():
            raise ValueError(f"peer {text!r} has another form than 'cusolver:122880'")
        return cls(name, int(order))


@dataclass(frozen=True)
class Fp64Case:
    """One factorization to measure: its matrix, its options, and what is measured beside it."""

    name: str  #: Name of the case and of its file
    n: int  #: Order of the matrix, which has at least two tile rows
    tile_size: int  #: Order of a tile
    budget: str | None  #: Memory budget per device, such as ``"8 GiB"``; None takes what :func:`ooc_chol.cholesky` takes
    engine: str = "native"  #: How FP64 products are computed
    moduli: int = 13  #: Number of moduli, for engines other than ``"native"``
    devices: tuple[str, ...] = ("cuda:0",)  #: Device names, all of one kind
    source: str = "device-function"  #: A made on the device (by its own tile function on the host, too), or lying in host memory
    policy: str = "planned"  #: Eviction policy of the plan
    repeats: int = 3  #: Runs that count
    #: Whether one more run of the same sizes comes first and is discarded; None: up to order :data:`WARM_UP_ORDER`
    warm_up: bool | None = None
    peers: tuple[Peer, ...] = ()  #: Factorizations of other libraries that are measured beside it
    dgemm_seconds: float = 5.0  #: Seconds of DGEMM before, and again after; ten in all, so that the clock settles

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(f"engine is {self.engine!r}; there are {', '.join(ENGINES)}")
        if self.source not in SOURCES:
            raise ValueError(f"source is {self.source!r}; there are {' and '.join(map(repr, SOURCES))}")
        if self.repeats < 1:
            raise ValueError(f"repeats is {self.repeats}, but at least 1 run is measured")
        if self.tile_size < 1 or self.n < 2 * self.tile_size:
            raise ValueError(f"n is {self.n} and tile_size {self.tile_size}, but a case has at least two tile rows")
        if self.budget is not None:
            parse_bytes(self.budget, "memory_budget")

    @property
    def on_gpu(self) -> bool:
        """True if its devices are GPUs."""
        return self.devices[0].startswith("cuda:")

    @property
    def warms_up(self) -> bool:
        """True if a run of the same sizes comes first and is discarded."""
        return self.n <= WARM_UP_ORDER if self.warm_up is None else self.warm_up

    @property
    def factor_bytes(self) -> int:
        """Bytes of the lower triangle of L in FP64."""
        return 4 * self.n * (self.n + 1)

    def check_machine(self) -> None:
        """Refuse a case that this machine cannot run, before anything is made."""
        resolve_devices(self.devices)
        array = 8 * self.n * self.n if self.source == "host-array" else 0
        needed, free = array + self.factor_bytes, memory_info("host:0")[0]
        if needed > HOST_SHARE * free:
            advice = "measure a smaller n" + (", or source='device-function'" if array else "")
            raise BudgetError(f"host memory for case {self.name}", needed, int(HOST_SHARE * free), advice)
