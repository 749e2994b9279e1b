"""The kernels of host devices, as planning knows them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import final

from ooc_chol.config import whole_pages
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.kernels.host.blas import blas_identity, blas_threads, host_threads
from ooc_chol.kernels.host.residues import HostResidueKernels
from ooc_chol.kernels.host.tiles import LEAST_STRIP, MOST_ALONE, MOST_STRIP, HostKernels
from ooc_chol.kernels.host.whole import HostWhole
from ooc_chol.kernels.interfaces.batch import AbstractBatchKernels
from ooc_chol.kernels.interfaces.residues import ROW_STATE_BYTES
from ooc_chol.kernels.kinds import AbstractKernelKind, KernelFacts
from ooc_chol.tasks.cholesky import Task, flops
from ooc_chol.tasks.tiling import TileGrid

#: Largest orders that are factored as one tile: of arrays in memory, and of what must be read or made.
MOST_WHOLE_ARRAY, MOST_WHOLE = 8192, 2048


@final
@dataclass(frozen=True)
class HostKernelKind(AbstractKernelKind):
    """SciPy's BLAS and LAPACK for tiles, NumPy for the rest; a team of threads shares each tile."""

    name: str = "host"
    tile_sizes: tuple[int, ...] = (2048, 1024, 512, 256, 128, 64, 32, 16)
    residue_tile_sizes: tuple[int, ...] = (256, 128, 64, 32, 16)
    finishes_beside: bool = False
    computes_float32: bool = True
    widens_stored: bool = False
    gains_by_residues: bool = False
    product_workspace_bytes: int = 0
    dear_order: int = 512
    dear_mixed_order: int = 256

    def wanted_slots(self, nb: int) -> int:
        """Few of small tiles: a step takes 40 microseconds, as long as a product of order 64 to 128.

        At order 1000 in 100 KiB, three tiles of 64 take 0.09 s of processors and 25 of 16 took 3; at 3000 in 16 MiB, eight of 512
        take 0.25 s and 32 of 256 took 0.32. Operands are fetched by a third more bytes then, which in large tiles counts.
        """
        return 3 if nb <= 128 else 8 if nb <= 512 else 20

    def workspace_bytes(self, nb: int, fmt: PrecisionFormat = FP64) -> int:
        return 0

    def residue_workspace_bytes(self, n: int, nb: int, fmt: PrecisionFormat = FP64) -> int:
        return ROW_STATE_BYTES * n

    def executed_flops(self, task: Task, grid: TileGrid, fmt: PrecisionFormat = FP64) -> int:
        return fmt.flops_factor * flops(task, grid)

    def create(self, threads: int, moduli: int | None, fmt: PrecisionFormat = FP64) -> HostKernels:
        """Make kernels whose tile and residue products have a team of ``threads`` each; they go by the type of the tiles."""
        return HostKernels(threads, None if moduli is None else HostResidueKernels(moduli, threads, fmt))

    def whole_order(self, source: str, *, keeps_on_device: bool) -> int:
        """Largest order of a whole factorization: arrays in place are only copied; other sources are read or made beside it."""
        return MOST_WHOLE_ARRAY if source == "array" else MOST_WHOLE

    def whole_layout(self, n: int, fmt: PrecisionFormat = FP64) -> tuple[int, str | None]:
        return whole_pages(fmt.itemsize * n * n), None

    def create_whole(self, name: str, fmt: PrecisionFormat = FP64) -> HostWhole:
        return HostWhole()

    def create_resident(self, name: str, fmt: PrecisionFormat = FP64) -> None:
        """None: L in host memory is read in place."""
        return

    def create_batch(self, name: str) -> AbstractBatchKernels:
        from ooc_chol.kernels.host.batch import HostBatch  # few calls need it

        return HostBatch()

    def processor(self, name: str) -> str:
        return f"{' '.join(blas_identity().values())}, {host_threads(1)} threads"

    def facts(self, names: Sequence[str], fmt: PrecisionFormat = FP64) -> KernelFacts:
        """Name the library, which decides the bits; the number of devices and of threads does not."""
        rows = f"strips of {LEAST_STRIP} to {MOST_STRIP} rows, diagonal tiles up to {MOST_ALONE} whole"
        return KernelFacts("host", " ".join(blas_identity().values()), "substitution", rows)

    def rate_facts(self) -> str:
        return f" threads={host_threads(1)} cores={os.cpu_count()}"

    def calling(self) -> AbstractContextManager[None]:
        """Limit each BLAS call to one thread: the kernels' own threads share a tile.

        Threaded calls divide their work beforehand and wait for the slowest: ten times slower where another program takes a core.
        """
        return blas_threads(1)
