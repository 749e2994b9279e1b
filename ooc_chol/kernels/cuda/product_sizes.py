"""What products of packed row blocks take of a CUDA device's memory; without CuPy, so that plans can be made anywhere."""

from __future__ import annotations

from ooc_chol.config import whole_pages
from ooc_chol.kernels.interfaces.products import PANEL_COLUMNS
from ooc_chol.precision.triples import Precision

#: Counters of places and of long rows, and bytes of what the kernels note of a segment and of a long row.
_COUNTERS_BYTES, _GROUP_BYTES, _ROW_BYTES = 256, 4, 12


def widest_panel(columns: int) -> int:
    """Width of the widest panel where all panels together have so many columns."""
    return next((width for width in PANEL_COLUMNS if width >= columns), PANEL_COLUMNS[-1])


def workspace_sizes(precision: Precision, columns: int, most_segments: int) -> tuple[int, ...]:
    """Bytes of counters, of what is noted of segments and of long rows, and of sums; none where no row is long."""
    if not most_segments:
        return 0, 0, 0, 0
    sum_bytes = widest_panel(columns) * precision.compute.itemsize
    return _COUNTERS_BYTES, *(whole_pages(each * most_segments) for each in (_GROUP_BYTES, _ROW_BYTES, sum_bytes))
