"""Milliseconds of block Lanczos steps on devices: passes, work on panels, and the thread that enqueues, on an R-MAT graph.

A cycle grows a basis from one panel to 12 panels of 8 columns, or 96 panels of one, as eigensolvers do
before they restart; the best cycle counts. With the small budget A is streamed, and the ring is three blocks deep, then six:
what is brought while vectors are orthogonalized shows in the seconds of a pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import ooc_chol as oc
from benchmarks.running import Options, attempt
from ooc_chol.eigen.device_space import DeviceSpace, open_space
from ooc_chol.sparse.block_csr import BlockCSR
from ooc_chol.sparse.pack import block_csr

FOLDER = "sparse"


class Case(NamedTuple):
    """What is measured."""

    precision: str
    block: int
    panels: int
    is_streamed: bool = False
    ring_slots: int = 3


CASES = (
    Case("FDF", 8, 12),
    Case("FDF", 1, 96),
    Case("DDD", 8, 12),
    Case("FDF", 8, 12, is_streamed=True),
    Case("FDF", 8, 12, is_streamed=True, ring_slots=6),
)


def cycle(space: DeviceSpace, panels: int) -> dict[str, float]:
    """Seconds of a step: enqueued, in all, passes, and panels."""
    space.read()
    passes, work, since = space.seconds.passes, space.seconds.panels, time.perf_counter()
    for number in range(panels):
        space.product(number)
        space.project(range(number + 1), f"C{number}")
        space.orthonormalize(number + 1, f"R{number}", range(number + 1))
    enqueued = time.perf_counter() - since
    space.read()
    whole = time.perf_counter() - since
    parts = {"enqueued": enqueued, "whole": whole, "pass": space.seconds.passes - passes, "panels": space.seconds.panels - work}
    return {f"{name}_seconds": seconds / panels for name, seconds in parts.items()}


def timed(space: DeviceSpace, what: str, panels: int) -> float:
    """Seconds of a rotation to half of the panels, or of certifying one panel."""
    block, since = space.block, time.perf_counter()
    if what == "rotation":
        shape = (panels * block, panels // 2 * block)
        space.rotate(range(panels), np.linalg.qr(np.random.default_rng(0).standard_normal(shape))[0], range(panels // 2))
        space.read()
    else:
        space.residuals(range(1), np.ones(block))
    return time.perf_counter() - since


def measured(a: BlockCSR, case: Case, args: Options) -> dict[str, Any]:
    """One case."""
    with open_space(
        a,
        block=case.block,
        capacity=case.panels + 1,
        precision=case.precision,
        devices=args.device,
        memory_budget=args.small if case.is_streamed else args.memory_budget,
        ring_slots=case.ring_slots,
    ) as space:
        space.fill(1)
        space.orthonormalize(0, "R", range(0))
        cycle(space, case.panels)  # kernels are compiled, kept blocks brought
        cycles = [cycle(space, case.panels) for _ in range(args.cycles)]
        found: dict[str, Any] = min(cycles, key=lambda each: each["whole_seconds"])
        for what in ("rotation", "residuals"):
            timed(space, what, case.panels)
            found[f"{what}_seconds"] = timed(space, what, case.panels)
        share = space.plan.products.shares[0]
        moved = share.stored_bytes - share.kept_bytes if share.ring_slots else 0
        facts = {"kept_blocks": share.n_kept, "blocks": len(share.blocks), "bytes_a_pass": moved}
        return facts | space.plan.memory()[share.device] | found


TAKES = {"scale": 22, "devices": "cuda:0", "memory_budget": "20 GiB", "small": "2800 MB", "cycles": 3}


def run(options: Options) -> Iterator[dict[str, Any]]:
    """Measure every case."""
    with block_csr(oc.testing.rmat(options.scale)) as a:
        about = {"case": f"krylov-space-{options.scale}", "graph": f"rmat({options.scale})", "entries": a.nnz}
        options.about = about | {"device": options.device}
        for case in CASES:
            yield case._asdict() | attempt(lambda case=case: measured(a, case, options))
