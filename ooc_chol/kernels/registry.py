"""The kernels of each kind of device: what planning asks of them, and devices opened with them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.hardware.registry import device_kind, driver_errors_typed, is_here, open_device
from ooc_chol.kernels.cuda import FOLDING_CAPABILITY
from ooc_chol.kernels.cuda.kind import CudaKernelKind
from ooc_chol.kernels.host.kind import HostKernelKind
from ooc_chol.kernels.interfaces import TileDevice
from ooc_chol.kernels.interfaces.panels import AbstractPanelKernels
from ooc_chol.kernels.interfaces.products import AbstractProductKernels, ProductDevice
from ooc_chol.kernels.interfaces.tensors import AbstractTensorKernels, Svt, TensorShape
from ooc_chol.kernels.kinds import AbstractKernelKind, KernelFacts
from ooc_chol.precision.triples import Precision

HOST, CUDA = HostKernelKind(), CudaKernelKind()
_KINDS: dict[str, AbstractKernelKind] = {kind.name: kind for kind in (HOST, CUDA)}


def kind_of(name: str) -> AbstractKernelKind:
    """The kind of kernels that a device has, by its name alone."""
    return _KINDS[device_kind(name).name]


def folds_products(names: Sequence[str]) -> bool:
    """Tell whether products through residues on all of these devices leave residues in int8 accumulators."""
    facts = [device_kind(name).gpu_facts(name) for name in names if is_here(name)]
    return len(facts) == len(names) and all(each is not None and each.capability == FOLDING_CAPABILITY for each in facts)


def open_tile_device(name: str, threads: int = 1, moduli: int | None = None, fmt: PrecisionFormat = FP64) -> TileDevice:
    """Open a device with its tile kernels, for one run: with ``threads`` on the host, and ``moduli`` for residues."""
    return open_device(name, kind_of(name).create(threads, moduli, fmt))


def product_kernels(
    name: str, precision: Precision, columns: int, most_segments: int, threads: int = 1
) -> AbstractProductKernels:
    """Kernels for products of packed row blocks on a device of that name, not yet bound to it; their module is imported now.

    ``columns`` counts those of all panels that are prepared at a time; ``threads`` are those of a host device.
    """
    if kind_of(name) is CUDA:
        module = import_module("ooc_chol.kernels.cuda.products")
        kernels: AbstractProductKernels = module.CudaProductKernels(precision, columns, most_segments)
        return kernels
    from ooc_chol.kernels.host.products import HostProductKernels

    return HostProductKernels(precision, columns, most_segments, threads)


def product_workspace_bytes(
    name: str, precision: Precision, columns: int, *, most_segments: int, nb: int, threads: int = 1
) -> int:
    """Bytes that :func:`product_kernels` of that device take for panels of ``nb`` rows; asks for no device and no CuPy."""
    if kind_of(name) is CUDA:
        from ooc_chol.kernels.cuda.product_sizes import workspace_sizes

        return sum(workspace_sizes(precision, columns, most_segments))
    return product_kernels(name, precision, columns, most_segments, threads).workspace_bytes(nb)


def open_product_device(name: str, precision: Precision, columns: int, most_segments: int, threads: int = 1) -> ProductDevice:
    """Open a device with the kernels of :func:`product_kernels`; a plan asks these for ``workspace_bytes`` without a device."""
    return open_device(name, product_kernels(name, precision, columns, most_segments, threads))


def panel_kernels(name: str, precision: Precision, block: int, threads: int = 1) -> AbstractPanelKernels:
    """Kernels on panels of ``block`` columns on a device of that name; a CUDA device is current where they are called.

    ``threads`` are those of a host device.
    """
    if kind_of(name) is CUDA:
        module = import_module("ooc_chol.kernels.cuda.panels")
        kernels: AbstractPanelKernels = module.CudaPanelKernels(precision, block)
        return kernels
    from ooc_chol.kernels.host.panels import HostPanelKernels

    return HostPanelKernels(precision, block, threads)


def tensor_kernels(
    name: str, shape: TensorShape, precision: Precision, svt: Svt = "auto", threads: int = 1
) -> AbstractTensorKernels:
    """Kernels for tensors of a shape on a device of that name, not yet bound to it; ``threads`` are those of a host device."""
    if kind_of(name) is CUDA:
        module = import_module("ooc_chol.kernels.cuda.tensors")
        kernels: AbstractTensorKernels = module.CudaTensorKernels(shape, precision, svt)
        return kernels
    from ooc_chol.kernels.host.tensors import HostTensorKernels

    return HostTensorKernels(shape, precision, svt, threads)


def tensor_workspace_bytes(name: str, shape: TensorShape, precision: Precision, svt: Svt = "auto") -> int:
    """Bytes of workspace that :func:`tensor_kernels` of that device take; asks for no device and no CuPy."""
    if kind_of(name) is CUDA:
        from ooc_chol.kernels.cuda.tensor_sizes import workspace_bytes

        return workspace_bytes(shape, precision, svt)
    return 0


def dense_eigenpairs(name: str, a: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All eigenpairs of a symmetric matrix in host memory, by a device of that name: values ascending, vectors in columns."""
    if kind_of(name) is CUDA:
        with driver_errors_typed(name, f"all eigenpairs of a matrix of order {len(a)}"):
            found: tuple[NDArray[np.float64], NDArray[np.float64]]
            found = import_module("ooc_chol.kernels.cuda.dense_eigenpairs").dense_eigenpairs(name, a)
            return found
    values, vectors = np.linalg.eigh(a)
    return values, vectors


def dense_eigenpairs_bytes(name: str, n: int) -> int:
    """Bytes of a device that :func:`dense_eigenpairs` takes: of cuSOLVER matrix, vectors and a workspace of 3 n^2 numbers."""
    return (5 if kind_of(name) is CUDA else 2) * 8 * n * n


def kernel_facts(names: Sequence[str], fmt: PrecisionFormat = FP64) -> KernelFacts:
    """Facts on which the bits of a factor depend when ``names``, all of one kind, make it; for the arithmetic key."""
    return kind_of(names[0]).facts(names, fmt)
