"""The kernels of a device that holds a basis: products and panels, in the precision asked for and in float64."""

from __future__ import annotations

from typing import NamedTuple, final

from ooc_chol.config import whole_pages
from ooc_chol.interfaces import AbstractDeviceKernels
from ooc_chol.kernels.interfaces.panels import AbstractPanelKernels
from ooc_chol.kernels.interfaces.products import AbstractProductKernels
from ooc_chol.kernels.registry import panel_kernels, product_kernels, product_workspace_bytes
from ooc_chol.precision.triples import Precision

#: Precision of certificates, whatever that of the basis is.
CERTIFYING = Precision.DDD


class KernelNeeds(NamedTuple):
    """Sizes and types for which kernels of a space are made."""

    precision: Precision
    block: int  #: Columns of a panel
    most_segments: int  #: Of a block of the matrix
    threads: int  #: Of a host device

    @property
    def wide_columns(self) -> int:
        """Columns of a panel that are certified at a time: as many as find room in float64 where a panel lies, at least one."""
        return max(1, self.block * self.precision.storage.itemsize // CERTIFYING.storage.itemsize)

    @property
    def product_sets(self) -> tuple[tuple[Precision, int], ...]:
        """Precisions and columns of the kernels for products."""
        own = (self.precision, self.block)
        return (own,) if self.precision is CERTIFYING else (own, (CERTIFYING, self.wide_columns))

    def workspace_bytes(self, name: str, nb: int) -> int:
        """Bytes that they take on a device of that name for a matrix of ``nb`` columns; no device is asked."""
        return sum(
            whole_pages(
                product_workspace_bytes(name, precision, columns, most_segments=self.most_segments, nb=nb, threads=self.threads)
            )
            for precision, columns in self.product_sets
        )


@final
class SpaceKernels(AbstractDeviceKernels):
    """All kernels of one device; they share its workspace, each with a part of its own."""

    def __init__(self, name: str, needs: KernelNeeds) -> None:
        sets, threads = needs.product_sets, needs.threads
        self._products = [product_kernels(name, *each, needs.most_segments, threads) for each in sets]
        self._panels = [panel_kernels(name, *each, threads) for each in sets]

    @property
    def products(self) -> AbstractProductKernels:
        """Products in the precision of the basis."""
        return self._products[0]

    @property
    def wide_products(self) -> AbstractProductKernels:
        """Products in float64."""
        return self._products[-1]

    @property
    def panels(self) -> AbstractPanelKernels:
        """Sums over rows and updates in the precision of the basis."""
        return self._panels[0]

    @property
    def wide_panels(self) -> AbstractPanelKernels:
        """The same in float64."""
        return self._panels[-1]

    def workspace_bytes(self, nb: int) -> int:
        """Bytes of all of them."""
        return sum(whole_pages(each.workspace_bytes(nb)) for each in self._products)

    def bind(self, nb: int, workspace: int) -> None:
        """Give each its part."""
        at = workspace
        for each in self._products:
            each.bind(nb, at)
            at += whole_pages(each.workspace_bytes(nb))

    def close(self) -> None:
        """Close all of them."""
        for products in self._products:
            products.close()
        for panels in self._panels:
            panels.close()
