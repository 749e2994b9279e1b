"""Facts sent with every task of a run on a cluster; plain data, which travels to the workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from ooc_chol.dense.options import FactorOptions
from ooc_chol.formats import PrecisionFormat
from ooc_chol.precision.tile_formats import PrecisionMap
from ooc_chol.tasks.tiling import TileGrid


@dataclass(frozen=True)
class ClusterRun:
    """A run: how A is cut, in which arithmetic it is factored, and within which budget of each worker."""

    grid: TileGrid  #: How A is cut into tiles, on all workers
    #: Those of the call with nothing left open that bits depend on: ``tile_size``, ``fp64`` ("native" or "residue") and
    #: ``moduli`` are set. ``devices`` and ``memory_budget`` are those of each worker.
    options: FactorOptions
    fmt: PrecisionFormat  #: Format of what is stored and computed, but for tiles that ``precision`` says otherwise of
    precision: PrecisionMap | None  #: Formats of the tiles in mixed precision
    arithmetic_key: dict[str, str | int]  #: What all workers must agree on: a task on a worker where it differs is refused
    #: What every task reads A from: an ``AbstractSource`` that can be pickled (a function, the path of a file, the URL of a Zarr
    #: array); None where each task is given its block of A as an array
    source: Any = None
    store: str | None = None  #: URL or path of the Zarr group that L goes to; None where workers keep it in memory
    writer: str | None = None  #: What the group of this run is told by from those of other runs
    #: With ``store``: bytes of a worker's memory for its task, where that runs on the host, and for tiles of L that it keeps for
    #: later tasks
    memory_bytes: int = 0
    shares_memory: bool = False  #: Whether blocks are in memory that others of a machine map, and that is page-locked for GPUs
    #: Whether devices keep tiles between tasks, which then do not cross their link again; what the host computes with lies there
    keeps_tiles: bool = False
    #: What tells the run from all others, also from those that wrote a group of the same name before
    name: str = field(default_factory=lambda: uuid4().hex, compare=False)
