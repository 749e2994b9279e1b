"""The kernels of CUDA devices, as planning knows them. CuPy is imported when the first ones are made."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, final

from ooc_chol.config import PAGE_BYTES
from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.kernels import cuda as sizes
from ooc_chol.kernels.interfaces import AbstractKernelSet
from ooc_chol.kernels.interfaces.batch import AbstractBatchKernels
from ooc_chol.kernels.interfaces.residues import ROW_STATE_BYTES, ResidueUnits
from ooc_chol.kernels.interfaces.whole import AbstractResidentKernels, AbstractWholeKernels
from ooc_chol.kernels.kinds import AbstractKernelKind, KernelFacts
from ooc_chol.memory.release import RELEASER
from ooc_chol.tasks.cholesky import Task, TaskKind, flops
from ooc_chol.tasks.tiling import TileGrid

if TYPE_CHECKING:
    from ooc_chol.kernels.cuda.whole import CudaWhole


@final
@dataclass(frozen=True)
class CudaKernelKind(AbstractKernelKind):
    """cuBLAS and cuBLASLt for products, kernels of our own for the rest."""

    name: str = "cuda"
    tile_sizes: tuple[int, ...] = (4096, 2048, 1024, 512, 256)
    residue_tile_sizes: tuple[int, ...] = (2048, 1024, 512, 256, 128, 64)
    finishes_beside: bool = True
    computes_float32: bool = False
    widens_stored: bool = True
    gains_by_residues: bool = True
    product_workspace_bytes: int = sizes.CUBLAS_WORKSPACE_BYTES
    dear_order: int = 0
    dear_mixed_order: int = 0
    #: Tensor cores that multiply residues; FP8 is for tests, and slower on Hopper.
    residue_units: ResidueUnits = "int8"

    def wanted_slots(self, nb: int) -> int:
        return 20

    def workspace_bytes(self, nb: int, fmt: PrecisionFormat = FP64) -> int:
        return sizes.workspace_bytes(nb) if fmt == FP64 else sizes.typed_workspace_bytes()

    def residue_workspace_bytes(self, n: int, nb: int, fmt: PrecisionFormat = FP64) -> int:
        """Bytes of workspace for four streams, in FP64 of inverted blocks, and of the rows' state, which ends at a page."""
        streams = sizes.RESIDUE_STREAMS
        workspace = sizes.workspace_bytes(nb, streams) if fmt == FP64 else sizes.typed_workspace_bytes(streams)
        return workspace + ROW_STATE_BYTES * n + PAGE_BYTES

    def executed_flops(self, task: Task, grid: TileGrid, fmt: PrecisionFormat = FP64) -> int:
        """Flops that run, in FP64 more than are counted: SYRK computes whole strips, and TRSM multiplies by inverted blocks."""
        if fmt != FP64:
            return fmt.flops_factor * flops(task, grid)
        if task.kind is TaskKind.SYRK:
            return sizes.syrk_flops(grid.size(task.i), grid.size(task.k))
        if task.kind is TaskKind.TRSM:
            return sizes.trsm_flops(grid.size(task.i), grid.size(task.j))
        return flops(task, grid)

    def create(self, threads: int, moduli: int | None, fmt: PrecisionFormat = FP64) -> AbstractKernelSet:
        """Make kernels that are bound to their GPU when the device allocates its arena."""
        from ooc_chol.kernels.cuda.residues import CudaResidueKernels
        from ooc_chol.kernels.cuda.tiles import CudaKernels
        from ooc_chol.kernels.cuda.typed import TypedCudaKernels

        residues = None if moduli is None else CudaResidueKernels(moduli, fmt, units=self.residue_units)
        return CudaKernels(residues) if fmt == FP64 else TypedCudaKernels(fmt, residues)

    def whole_order(self, source: str, *, keeps_on_device: bool) -> int:
        """Copies of larger matrices over the link run beside the computation, tile by tile."""
        return sizes.MOST_WHOLE_HERE if source == "device-array" and keeps_on_device else sizes.MOST_WHOLE

    def whole_layout(self, n: int, fmt: PrecisionFormat = FP64) -> tuple[int, str | None]:
        return sizes.whole_bytes(n, fmt.itemsize), "cuSOLVER's POTRF"

    def create_whole(self, name: str, fmt: PrecisionFormat = FP64) -> AbstractWholeKernels:
        return _whole(name, fmt)

    def create_resident(self, name: str, fmt: PrecisionFormat = FP64) -> AbstractResidentKernels:
        return _whole(name, fmt)

    def create_batch(self, name: str) -> AbstractBatchKernels:
        from ooc_chol.kernels.cuda.batch import CudaBatch

        return CudaBatch(name)

    def processor(self, name: str) -> str:
        from ooc_chol.hardware import cuda

        return cuda.model(name)

    def facts(self, names: Sequence[str], fmt: PrecisionFormat = FP64) -> KernelFacts:
        from ooc_chol.hardware import cuda

        models = " + ".join(dict.fromkeys(cuda.model(name) for name in names))
        if fmt != FP64:
            square = "HERK" if fmt.is_complex else "SYRK"
            kernels = f"GEMM and {square} of cuBLAS, {sizes.segments_text()}"
            return KernelFacts(models, cuda.library_versions(), "TRSM of cuBLAS, POTRF by halves down to 32", kernels)
        trsm = f"POTRF and TRSM of our own by blocks of {sizes.TRSM_BLOCK}, inverted and refined once"
        kernels = f"SYRK in {sizes.SYRK_PARTS} strips, {sizes.segments_text()}"
        return KernelFacts(models, cuda.library_versions(), trsm, kernels)

    def rate_facts(self) -> str:
        return ""

    def calling(self) -> AbstractContextManager[None]:
        """Let no host memory of an earlier call be unlocked: launches would wait for the driver's lock."""
        return RELEASER.standing_back()


@cache
def _whole(name: str, fmt: PrecisionFormat) -> CudaWhole:
    """Kernels for whole matrices, which hold nothing of any of them."""
    from ooc_chol.kernels.cuda.whole import CudaWhole

    return CudaWhole(name, fmt)
