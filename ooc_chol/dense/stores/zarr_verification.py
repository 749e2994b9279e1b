"""Verification of the Zarr group of an L against what was written: its attributes, its arrays, every tile and every checksum."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing

from ooc_chol.dense.stores.kept import AnyPlace
from ooc_chol.dense.stores.verification import Damage, Verdict
from ooc_chol.dense.stores.zarr_header import VERSION
from ooc_chol.dense.stores.zarr_layout import DOCUMENT
from ooc_chol.dense.stores.zarr_store import ZarrStore
from ooc_chol.errors import DamagedFileError
from ooc_chol.process.team import ThreadTeam, cores


def verify_group(place: AnyPlace) -> Verdict:
    """Read all of the Zarr group of an L, finished or not, and compare it with its checksums.

    All cores share the tiles, a tile of memory for each. Both checksums of a tile are compared: the XXH3-64, which is bound to
    its place, and the CRC-32C that plain readers of Zarr compare. Raises ``FileNotFoundError`` and ``TierError``.
    """
    name, begun = os.fspath(place), time.perf_counter()
    try:
        store = ZarrStore.open_for_writing(place)
    except DamagedFileError as error:
        damage = Damage("attributes of the group", None, None, text=str(error).removeprefix(f"{error.path}: "))
        return Verdict(name, None, None, None, False, False, 0, 0, 0, time.perf_counter() - begun, (damage,))
    with closing(store):
        return _verdict(store, name, begun)


def _verdict(store: ZarrStore, name: str, begun: float) -> Verdict:
    """Verify an open group."""
    found = [*_damage_of_arrays(store)]
    try:
        missing = {index for index in store.grid.tiles() if not store.checksum_of(index)}
        found += _damage_of_index(store)
    except DamagedFileError as error:
        found.append(Damage("checksums", None, None, text=str(error).removeprefix(f"{error.path}: ")))
        missing = set(store.grid.tiles())
    read = [index for index in store.grid.tiles() if index not in missing or store.is_complete]
    with closing(ThreadTeam(cores())) as team:
        texts = team.map(store.damage_of, read)
    for index, text in zip(read, texts, strict=True):
        if text:
            tile = int(index[0]), int(index[1])
            found.append(Damage(f"tile {tile}", None, None, tile, f"tile {tile}: {text} ({store.key_of(index)})"))
    return Verdict(
        *(name, VERSION, store.grid.n, store.grid.nb, store.is_complete, True),
        *(len(read), 0 if store.is_complete else len(missing), sum(store.layout.nbytes(*index) for index in read)),
        *(time.perf_counter() - begun, tuple(found)),
    )


def _damage_of_arrays(store: ZarrStore) -> Iterator[Damage]:
    """Arrays whose descriptions are not those that plain readers need."""
    for array in store.header.shape.arrays():
        key = f"{array.name}/{DOCUMENT}"
        try:
            written = json.loads(store.folder.read(key))
        except (FileNotFoundError, ValueError):
            written = None
        if written != json.loads(array.document()):
            text = "is missing, or describes another array; plain readers of Zarr need it"
            yield Damage(key, None, None, text=f"{key} {text}")


def _damage_of_index(store: ZarrStore) -> Iterator[Damage]:
    """Checksums of a complete group that are not those that its attributes sign."""
    expected = store.header.index_hash
    if store.is_complete and (found := store.index_hash(store.packed_checksums())) != expected:
        text = f"checksums have the XXH3-64 {found:016x} in all, and {expected or 0:016x} is signed: some are of another factor"
        yield Damage("checksums", None, None, text=text)
