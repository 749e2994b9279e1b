"""An L in a file as its plan has it: what host memory keeps of it, and whether the system's cache may help."""

from __future__ import annotations

import os

from ooc_chol.dense.execution.page_locking import lock_store
from ooc_chol.dense.kept_room import make_room_for_kept
from ooc_chol.dense.options import FactorOptions
from ooc_chol.dense.planner.file_tier import stays_out_of_cache
from ooc_chol.dense.planner.plan import Plan
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.file import FileStore
from ooc_chol.dense.stores.tiered import TieredStore
from ooc_chol.memory.sources.base import AbstractSource


def over_file(file: FileStore, plan: Plan, source: AbstractSource, options: FactorOptions) -> AbstractStore:
    """The store of an L in ``file``, of which host memory keeps the tiles that ``plan`` says; an error discards the file.

    With a ``host_budget``, or where the files of A and L are large beside what is free, neither stays in the system's cache.
    """
    try:
        if stays_out_of_cache(options, _bytes_of(file, source)):
            file.keep_out_of_cache()
            source.is_bounded = True
        if not plan.host_tiles:
            return file
        make_room_for_kept(plan)
        store = TieredStore(file, plan.host_tiles)
    except BaseException:
        file.discard()
        raise
    try:
        lock_store(plan, store)
    except BaseException:
        store.discard()
        raise
    return store


def _bytes_of(file: FileStore, source: AbstractSource) -> int:
    """Bytes of the file of L and of those that A is read from, as far as they can be asked."""
    sizes = [os.path.getsize(path) for path in source.files if os.path.isfile(path)]
    return file.nbytes + sum(sizes)
