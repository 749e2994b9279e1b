"""What planning must know of the kernels of a kind of device, and making them: no device is needed for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ooc_chol.kernels.interfaces import AbstractKernelSet
from ooc_chol.tasks.cholesky import Task
from ooc_chol.tasks.tiling import TileGrid


@dataclass(frozen=True)
class KernelFacts:
    """What the bits of a factor depend on, of the devices of a run and their kernels."""

    model: str  #: Model of the device; library with version and kernel architecture
    library: str
    trsm: str  #: How the triangular solve is done, and into which calls a tile kernel is divided
    kernels: str


@dataclass(frozen=True)
class AbstractKernelKind(ABC):
    """The kernels of the devices whose names begin with ``name``."""

    name: str
    tile_sizes: tuple[int, ...]  #: Tile orders that the planner chooses from, largest first
    residue_tile_sizes: tuple[int, ...]  #: The same for products through residues
    #: Whether tiles are finished on a stream of their own. On a GPU a small kernel leaves processors to another stream's; on the
    #: host one team of threads serves one kernel after the other, and a second stream would only take its cores.
    finishes_beside: bool
    computes_float32: bool  #: Whether they compute in the type of the tile that they change; else in float64 alone
    widens_stored: bool  #: Whether they widen and round stored tiles on the device; else the tiers do it on the way
    #: Whether products through residues may be faster than native ones in FP64
    gains_by_residues: bool

    @abstractmethod
    def workspace_bytes(self, nb: int) -> int:
        """Bytes of kernel workspace inside the budget."""

    @abstractmethod
    def residue_workspace_bytes(self, n: int, nb: int) -> int:
        """The same for products through residues: more streams multiply, and rows have state."""

    @abstractmethod
    def executed_flops(self, task: Task, grid: TileGrid) -> int:
        """Flops that the kernels execute for ``task``, where :func:`ooc_chol.tasks.cholesky.flops` counts the leading terms."""

    @abstractmethod
    def create(self, threads: int, moduli: int | None) -> AbstractKernelSet:
        """Kernels for one device, with ``threads`` on the host; with ``moduli``, products through residues too."""

    @abstractmethod
    def processor(self, name: str) -> str:
        """What computes on a device that is here, for a reader."""

    @abstractmethod
    def facts(self, names: Sequence[str]) -> KernelFacts:
        """What the bits of a factor made by these devices depend on."""

    @abstractmethod
    def rate_facts(self) -> str:
        """What else measured rates depend on; empty, or text that begins with a blank."""

    @abstractmethod
    def calling(self) -> AbstractContextManager[None]:
        """What must hold in the process while they run."""
