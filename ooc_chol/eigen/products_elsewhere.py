"""Products of panels on a device of this process with a matrix that is elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.eigen.space_device import SpaceDevice
from ooc_chol.interfaces import AbstractEvent
from ooc_chol.precision.triples import Precision
from ooc_chol.runtime.passes import finish
from ooc_chol.sparse.panels import bring_vectors, return_panel

#: For a precision, what multiplies arrays of the host, in the order of packed rows.
ProductOf: TypeAlias = Callable[[Precision], Callable[[NDArray[Any]], NDArray[Any]]]


@final
class ProductsElsewhere:
    """In place of products with blocks: X goes to whatever multiplies, and Y comes back. Whoever calls waits for it."""

    def __init__(self, device: SpaceDevice, precision: Precision, product_of: ProductOf, slot_bytes: int) -> None:
        self._device, self._precision, self._product_of, self._slot = device, precision, product_of, slot_bytes
        self._y: NDArray[Any] | None = None  # until it is on the device

    def multiply(self, width: int) -> AbstractEvent:
        """Make the product of what lies in X, in float64 where it does; returns an event behind it."""
        device, computing = self._device.device, self._device.computing
        (x,), (y,) = (self._device.products.panels(side, (width,)) for side in (0, 1))
        given = np.empty(x.shape, x.dtype)
        with device.current():
            return_panel(device, computing, x, given, 0, self._slot)
            finish(device, [computing])
        is_wide = x.dtype == Precision.DDD.storage
        self._y = self._product_of(Precision.DDD if is_wide else self._precision)(given)
        with device.current():
            bring_vectors(device, computing, self._y, 0, y, self._slot)
            return computing.record()
