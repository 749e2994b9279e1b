"""Files read and written past the system's cache: the same bytes, whole tiles and ragged ones, and no page left in the cache."""

from __future__ import annotations

import errno
import mmap
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_chol.errors import TierError
from tests.inside.files import BOUNCE_BYTES, DirectAccess, DroppingAccess, opened_access
from tests.inside.files import access as accesses
from tests.inside.ground import PAGE_BYTES, whole_pages

PAGES = 3 * BOUNCE_BYTES // PAGE_BYTES


@pytest.fixture
def descriptor(tmp_path):
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(number, 0, PAGES * PAGE_BYTES)
    yield number
    os.close(number)


@pytest.fixture(params=["direct", "dropping"])
def access(request, descriptor):
    one = opened_access(descriptor) if request.param == "direct" else DroppingAccess(descriptor)
    assert one.name == {"direct": "direct", "dropping": "cache dropped behind"}[request.param]
    yield one
    one.close()


def some_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def at(memory, skip, count):
    """``count`` bytes that begin ``skip`` behind a page."""
    return np.frombuffer(memory, np.uint8)[skip : skip + count]


LENGTHS = [1, 511, PAGE_BYTES, PAGE_BYTES + 1, 5 * PAGE_BYTES - 8, BOUNCE_BYTES, 2 * BOUNCE_BYTES + 24]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("skip", [0, 16, 512])
def test_what_is_written_is_read_from_and_into_memory_of_any_alignment(access, descriptor, length, skip):
    memory = mmap.mmap(-1, whole_pages(length + skip) + PAGE_BYTES)
    data = at(memory, skip, length)
    data[:] = some_bytes(length)
    access.write(data.data, PAGE_BYTES, "file")
    assert os.pread(descriptor, length, PAGE_BYTES) == data.tobytes()
    back = at(mmap.mmap(-1, whole_pages(length + skip) + PAGE_BYTES), skip, length)
    access.read(back.data, PAGE_BYTES, "file")
    assert np.array_equal(back, data)


def test_a_ragged_tile_leaves_zeros_to_the_end_of_its_page_and_nothing_behind(access, descriptor):
    os.pwrite(descriptor, b"\xff" * (3 * PAGE_BYTES), 0)
    access.write(some_bytes(PAGE_BYTES + 100).data, 0, "file")
    after = np.frombuffer(os.pread(descriptor, 3 * PAGE_BYTES, 0), np.uint8)
    assert np.all(after[2 * PAGE_BYTES :] == 255)
    if access.name == "direct":
        assert not after[PAGE_BYTES + 100 : 2 * PAGE_BYTES].any()


@given(offset=st.integers(0, 3 * PAGE_BYTES), count=st.integers(0, 4 * PAGE_BYTES))
def test_any_part_of_a_file_is_read(tmp_path_factory, offset, count):
    path = tmp_path_factory.mktemp("part") / "file"
    data = some_bytes(8 * PAGE_BYTES)
    path.write_bytes(data.tobytes())
    number = os.open(path, os.O_RDWR)
    one = opened_access(number)
    try:
        out = np.empty(count, np.uint8)
        one.read(out.data, offset, "file")
        assert np.array_equal(out, data[offset : offset + count])
    finally:
        one.close()
        os.close(number)


def cached_pages(path):
    """Pages of a file that are in the system's cache."""
    import ctypes

    size = os.path.getsize(path)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        vector = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
        array = np.frombuffer(mapped, np.uint8)
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(size), vector) == 0
        del array
        return sum(value & 1 for value in vector)


def test_no_page_stays_in_the_cache(tmp_path, access, descriptor):
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    memory = np.frombuffer(mmap.mmap(-1, BOUNCE_BYTES), np.uint8)
    for start in range(0, 3 * BOUNCE_BYTES, BOUNCE_BYTES):
        access.write(memory.data, start, "file")
    os.fsync(descriptor)
    access.write(memory.data, 0, "file")  # of a file whose cache is dropped behind, this drops what is on the disk by now
    os.fsync(descriptor)
    access.write(memory.data, 0, "file")
    for start in range(0, 3 * BOUNCE_BYTES, BOUNCE_BYTES):
        access.read(memory.data, start, "file")
    most = 0 if access.name == "direct" else BOUNCE_BYTES // PAGE_BYTES
    assert cached_pages(tmp_path / "file") <= most
    assert cached_pages(tmp_path / "file") < PAGES  # the count can see pages: all of them, once the file is read as usual
    os.pread(descriptor, PAGES * PAGE_BYTES, 0)
    assert cached_pages(tmp_path / "file") == PAGES


def test_a_file_that_ends_too_early_is_an_error_that_names_it(access, descriptor):
    os.ftruncate(descriptor, 2 * PAGE_BYTES + 10)
    with pytest.raises(TierError, match=r"some\.file.*(ends|cut)"):
        access.read(np.empty(4 * PAGE_BYTES, np.uint8).data, 0, "some.file")


def test_a_disk_that_refuses_a_write_is_an_error_with_its_reason(monkeypatch, access):
    def refuse(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwritev", refuse)
    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(TierError, match=r"some\.file.*Input/output error"):
        access.write(some_bytes(PAGE_BYTES).data, 0, "some.file")


def test_reads_and_writes_in_parts_are_whole(monkeypatch, descriptor):
    """The system may move less than it is asked for, if whole pages."""
    reads, writes = os.preadv, os.pwritev
    monkeypatch.setattr(
        os, "preadv", lambda number, parts, offset: reads(number, [memoryview(parts[0])[: 2 * PAGE_BYTES]], offset)
    )
    monkeypatch.setattr(
        os, "pwritev", lambda number, parts, offset: writes(number, [memoryview(parts[0])[: 3 * PAGE_BYTES]], offset)
    )
    one = opened_access(descriptor)
    assert isinstance(one, DirectAccess)
    data = some_bytes(9 * PAGE_BYTES + 77)
    one.write(data.data, 0, "file")
    back = np.empty_like(data)
    one.read(back.data, 0, "file")
    one.close()
    assert np.array_equal(back, data)


def test_a_file_system_without_direct_reads_has_its_cache_dropped(monkeypatch, descriptor):
    monkeypatch.setattr(accesses, "_takes_pages", lambda number: False)
    before = len(os.listdir("/proc/self/fd"))
    one = opened_access(descriptor)
    assert isinstance(one, DroppingAccess) and len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("access", ["direct"], indirect=True)
@pytest.mark.parametrize("name", ["preadv", "pwritev"])
def test_less_than_a_page_is_asked_for_again_and_an_error_only_then(access, descriptor, monkeypatch, name):
    """Direct I/O counts in sectors, so that a call may move a part of a page; a file that was cut does so each time."""
    data = at(memory := mmap.mmap(-1, 4 * PAGE_BYTES), 0, 4 * PAGE_BYTES)
    data[:] = np.arange(len(data)) % 251
    access.write(data.data, 0, "L")
    real, left = getattr(os, name), [1]

    def short(which, buffers, offset):
        if not left:
            return real(which, buffers, offset)
        left.pop()
        return 512

    monkeypatch.setattr(os, name, short)
    move = access.read if name == "preadv" else access.write
    move(data.data, 0, "L")
    assert not left and np.array_equal(data, np.arange(len(data)) % 251)
    left += [1, 1]
    with pytest.raises(TierError, match=r"L: (ends within the page|the system writes 512 of)"):
        move(data.data, 0, "L")
    del data, memory
