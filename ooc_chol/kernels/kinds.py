"""Facts of the kernels of a kind of device for planning, and making them: no device is needed for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.kernels.interfaces import AbstractKernelSet
from ooc_chol.kernels.interfaces.batch import AbstractBatchKernels
from ooc_chol.kernels.interfaces.whole import AbstractResidentKernels, AbstractWholeKernels
from ooc_chol.tasks.cholesky import Task
from ooc_chol.tasks.tiling import TileGrid


@dataclass(frozen=True)
class KernelFacts:
    """Facts on which the bits of a factor depend, of its devices and their kernels, as text for the arithmetic key."""

    model: str  #: Models of the GPUs, each once; ``"host"`` for the host, where the library says more
    library: str  #: Names and versions of the libraries, with the BLAS library's kernel architecture
    trsm: str  #: How the triangular solve is done
    kernels: str  #: Into which calls a tile kernel is divided


@dataclass(frozen=True)
class AbstractKernelKind(ABC):
    """The kernels of the devices whose names begin with ``name``."""

    name: str
    tile_sizes: tuple[int, ...]  #: Tile orders that the planner chooses from, largest first
    residue_tile_sizes: tuple[int, ...]  #: Tile orders that it chooses from for products through residues, largest first
    #: Whether tiles are finished on a stream of their own. On a GPU a small kernel leaves processors to another stream's; on the
    #: host one team of threads serves one kernel after the other, and a second stream would only take its cores.
    finishes_beside: bool
    computes_float32: bool  #: Whether the kernels compute in the type of the tile that they change; else in float64 alone
    widens_stored: bool  #: Whether the kernels widen and round stored tiles on the device; else the tiers do it on the way
    #: Whether products through residues may be faster than native ones in FP64
    gains_by_residues: bool
    #: Bytes of workspace that a stream takes which multiplies beside those of the engine
    product_workspace_bytes: int

    #: Tile orders up to which a step costs more than its arithmetic, so that fewer and larger tiles are faster even where few
    #: rows of them are left: in FP64, and where each tile has a format of its own. 0 where the number of rows alone decides.
    dear_order: int
    dear_mixed_order: int

    @abstractmethod
    def wanted_slots(self, nb: int) -> int:
        """Tiles of order ``nb`` that a budget should hold, so that those on the device are used often enough."""

    @abstractmethod
    def workspace_bytes(self, nb: int, fmt: PrecisionFormat = FP64) -> int:
        """Bytes of workspace, inside the budget, that the kernels of a format take at tile order ``nb``."""

    @abstractmethod
    def residue_workspace_bytes(self, n: int, nb: int, fmt: PrecisionFormat = FP64) -> int:
        """Bytes of workspace with products through residues: more streams multiply, and each of ``n`` rows has state."""

    @abstractmethod
    def executed_flops(self, task: Task, grid: TileGrid, fmt: PrecisionFormat = FP64) -> int:
        """Flops of real numbers that the kernels execute for ``task``: :func:`ooc_chol.tasks.cholesky.flops` and more."""

    @abstractmethod
    def create(self, threads: int, moduli: int | None, fmt: PrecisionFormat = FP64) -> AbstractKernelSet:
        """Make kernels for tiles of one format, with ``threads`` on the host; with ``moduli``, products through residues too."""

    @abstractmethod
    def whole_order(self, source: str, *, keeps_on_device: bool) -> int:
        """Largest order of a matrix that is best factored as one tile: by its kind of source, and by where L stays."""

    @abstractmethod
    def whole_layout(self, n: int, fmt: PrecisionFormat = FP64) -> tuple[int, str | None]:
        """Bytes on the device of such a matrix with workspace, and the routine where that is not the kernel of tiles."""

    @abstractmethod
    def create_whole(self, name: str, fmt: PrecisionFormat = FP64) -> AbstractWholeKernels:
        """Make what factors a matrix of one format that is one tile, on the device of that name."""

    @abstractmethod
    def create_resident(self, name: str, fmt: PrecisionFormat = FP64) -> AbstractResidentKernels | None:
        """Make what computes with an L that stays on that device; None where L in its memory is read in place anyway."""

    @abstractmethod
    def create_batch(self, name: str) -> AbstractBatchKernels:
        """Make what factors many small matrices at once on that device."""

    @abstractmethod
    def processor(self, name: str) -> str:
        """Name what computes on a device that is here, for a reader: a GPU's model, or the BLAS library and its threads."""

    @abstractmethod
    def facts(self, names: Sequence[str], fmt: PrecisionFormat = FP64) -> KernelFacts:
        """Say what the bits of a factor made by these devices depend on."""

    @abstractmethod
    def rate_facts(self) -> str:
        """Say what else measured rates depend on: nothing, or text that begins with a blank."""

    @abstractmethod
    def calling(self) -> AbstractContextManager[None]:
        """Let what the kernels need of the process hold inside a ``with`` block, around each run."""
