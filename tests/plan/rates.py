"""Made-up rates for the tests of planning, simple enough to add up by hand."""

from __future__ import annotations

from ooc_chol.dense.programs.cost import Rates

#: Tiles of order 4: a fetch and a write take 1 second (128 bytes), a generation 1 second, a GEMM 1 second (128 flops) ...
UNIT_RATES = Rates(
    tile_size=4,
    potrf=21.0,  # ... and so do POTRF (21 flops), TRSM and SYRK (64 flops). Launching takes next to nothing.
    trsm=64.0,
    syrk=64.0,
    gemm=128.0,
    source=128.0,
    fetch=128.0,
    write=128.0,
    generate=16.0,
    launch=1e-12,
)
