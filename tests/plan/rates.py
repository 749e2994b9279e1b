"""Made-up rates for the tests of planning, simple enough to add up by hand."""

from __future__ import annotations

from tests.inside.dense import Rates, ResidueRates

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

#: About what an H200 does with tiles of order 2048.
H200_RATES = Rates(
    tile_size=2048, potrf=4e12, trsm=3e13, syrk=5e13, gemm=5.3e13, source=5e10, fetch=5e10, write=5e10, generate=5e10,
    launch=5e-6,
    invert=4e9, residue=ResidueRates(
        13, product=1.1e14, accumulate=4.2e10, convert=2e11, reconstruct=6e10, pull=3e11, half=4e14, half_accumulate=1e11
    ),
)  # fmt: skip
