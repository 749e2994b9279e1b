"""Blocks of a packed file that stay in host memory: the same bits from fewer reads, within the budget, and damage as ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

import ooc_chol as oc
from tests.host.packed_file_bytes import PAGE
from tests.inside.files import BlockFile
from tests.inside.sparse import evenly_kept

pytestmark = pytest.mark.host

HOW = {"tol": 1e-6, "devices": "host:0", "memory_budget": "8 MiB", "block": 4, "ncv": 32, "method": "lanczos", "check": False}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    drawn = csr_array(random_array((6000, 6000), density=8e-3, rng=np.random.default_rng(0)))
    name = tmp_path_factory.mktemp("kept") / "a.oocsr"
    oc.block_csr(csr_array(drawn + drawn.T), store=name, block_bytes="64 KiB").close()
    return name


@pytest.fixture
def reads(monkeypatch):
    """Numbers of blocks that were read from files, in order."""
    found, whole = [], BlockFile.read_stored

    def read(self, index, out):
        found.append(index[0])
        whole(self, index, out)

    monkeypatch.setattr(BlockFile, "read_stored", read)
    return found


def test_blocks_are_read_once_where_there_is_room_and_bits_stay(path, reads):
    found = {}
    for budget in (None, "2 MB", "1 GiB"):
        reads.clear()
        pairs = oc.eigsh(path, 1, host_budget=budget, **HOW)
        found[budget] = pairs, list(reads)
    bare, every = found[None]
    with oc.block_csr(path) as a:
        count = len(a.blocks.blocks)
    for pairs, _ in found.values():
        assert pairs.eigenvectors.tobytes() == bare.eigenvectors.tobytes()
        assert pairs.report.bytes.executed == pairs.report.bytes.planned == bare.report.bytes.planned
    assert sorted(found["1 GiB"][1]) == list(range(count))
    assert len(every) > len(found["2 MB"][1]) > count


def test_svds_reads_a_file_once_where_there_is_room(tmp_path, reads):
    a = csr_array(random_array((6000, 4000), density=4e-2, rng=np.random.default_rng(1)))
    how = {"precision": "FDF", "tol": 1e-4, "devices": "host:0", "memory_budget": "14 MB", "check": False}
    with oc.block_csr(a, store=tmp_path / "a.oocsr", block_bytes="256 KiB") as packed:
        bare = oc.svds(packed, 2, **how)
        every = len(reads)
        reads.clear()
        kept = oc.svds(packed, 2, host_budget="1 GiB", **how)
        assert kept.s.tobytes() == bare.s.tobytes()
        assert kept.report.bytes.executed == bare.report.bytes.executed
        # Once for the transpose, and those that devices keep once for each precision.
        assert len(reads) <= 4 * len(packed.blocks.blocks) < every / 2


def test_a_damaged_block_is_refused_when_it_is_first_read(path, tmp_path):
    content = bytearray(path.read_bytes())
    content[-PAGE * 3] ^= 1
    damaged = tmp_path / "damaged.oocsr"
    damaged.write_bytes(content)
    with pytest.raises(oc.errors.DamagedFileError, match="damaged"):
        oc.eigsh(damaged, 1, host_budget="1 GiB", **HOW)


@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=40), st.integers(0, 1 << 20), st.randoms())
def test_what_is_kept_fits_and_is_spread(sizes, room, random):
    order = list(range(len(sizes)))
    random.shuffle(order)
    kept = evenly_kept(order, sizes, room)
    pages = [-(-size // 4096) * 4096 for size in sizes]
    assert sum(pages[number] for number in kept) <= room and set(kept) <= set(order)
    total, largest, done, taken = sum(pages), max(pages), 0, 0
    if room >= total:
        assert kept == order
    for number in order:  # never further from an even share than a block
        done += pages[number]
        taken += pages[number] * (number in set(kept))
        assert taken <= done * min(1.0, room / total) + 1
        if number not in set(kept) and room < total:
            assert done * room / total - taken < 2 * largest
