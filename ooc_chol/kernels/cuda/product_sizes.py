"""Bytes of a CUDA device for products of packed row blocks; without CuPy, so that plans can be made anywhere."""

from __future__ import annotations

from ooc_chol.config import whole_pages
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS
from ooc_chol.precision.triples import Precision

#: Bytes of a count of those segments of a long row whose sums are there.
_COUNT_BYTES = 4


def widest_panel(columns: int) -> int:
    """Width of the widest panel where all panels together have so many columns."""
    return next((width for width in PANEL_COLUMNS if width >= columns), PANEL_COLUMNS[-1])


def workspace_sizes(precision: Precision, columns: int, most_segments: int) -> tuple[int, int]:
    """Bytes of counts and of sums, for places of so many segments; none where no row is long."""
    sum_bytes = widest_panel(columns) * precision.compute.itemsize
    return whole_pages(_COUNT_BYTES * most_segments), whole_pages(sum_bytes * most_segments)
