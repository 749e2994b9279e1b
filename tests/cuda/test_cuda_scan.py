"""Scans over blocks on a GPU: the checks of the host device; and a GPU without tile kernels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from ooc_chol.errors import ScheduleError, TierError
from tests.builders import memory_store
from tests.host.scans import ByteBlocks, NoKernels, check_scans, opened
from tests.inside.hardware import open_device
from tests.inside.interfaces import AbstractDeviceKernels, ArraySpec
from tests.inside.runtime import Passes
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.cuda
DEVICE = "cuda:0"
SIZES = [4 << 20, 8, 3 << 20, 640, 1, 96]
ALL = [(block, 0) for block in range(len(SIZES))]


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("kept", [0, 2, 6])
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("is_only_read", [False, True])
def test_blocks_come_in_order_and_whole_with_the_fewest_copies(is_only_read, slots, kept, ahead):
    passes, orders = Passes(is_traced=True), [range(6), range(6), range(5, -1, -1), [2, 2, 0, 2]]
    with passes.running("multiply", 1) as run:
        check_scans(DEVICE, SIZES, orders, slots=slots, kept=kept, ahead=ahead, run=run, is_only_read=is_only_read)
    records = passes.records
    by_step = {record.step: record for record in records}
    assert len([record for record in records if record.kind == "compute"]) == sum(map(len, orders))
    for record in records:  # events are timed to half a microsecond
        assert all(by_step[step].end_ns <= record.start_ns + 5000 for _, step in record.after)


def test_the_ring_fills_before_the_next_scan_is_asked_for():
    with opened(DEVICE, SIZES, slots=3, kept=2) as on:
        list(on.scan.over(ALL))
        on.scan.run_ahead(ALL)
        on.streams.copying.synchronize()
        assert on.tier.reads == [*range(6), 2, 3, 4]
        list(on.scan.over(ALL))
        on.scan.finish()
        assert on.scan.copied_bytes == sum(SIZES) + sum(SIZES[2:])


@pytest.mark.parametrize("is_only_read", [False, True])
def test_an_error_of_a_copy_reaches_who_waits_for_the_scan(is_only_read):
    def told(block: int) -> None:
        if block == 3:
            raise TierError("the disk is gone")

    how = {"slots": 2, "rows": 6, "is_only_read": is_only_read}
    with pytest.raises(TierError, match="the disk is gone"), opened(DEVICE, SIZES, **how) as on:
        on.tier.told = told
        for row, (key, tile) in enumerate(on.scan.over(ALL)):
            on.use(key, tile, row)
        on.scan.finish()
    assert on.tier.reads == [0, 1, 2], "nothing is read behind a copy that failed"


class _Fill(AbstractDeviceKernels):
    """Kernels that know nothing of tiles: they fill their workspace."""

    def __init__(self) -> None:
        self.workspace, self.is_closed = 0, False

    def workspace_bytes(self, nb: int) -> int:
        return 4096

    def bind(self, nb: int, workspace: int) -> None:
        import cupy as cp

        self.workspace = workspace
        cp.cuda.runtime.memset(workspace, 7, 4096)

    def close(self) -> None:
        self.is_closed = True


def test_a_device_without_tile_kernels():
    import cupy as cp

    kernels = _Fill()
    with closing(open_device(DEVICE, kernels)) as device, device.current():
        arena = device.allocate(2, 4096, 1, [ArraySpec(np.dtype(np.float32), (5, 2))])
        low = arena.tile(0, (1, 1), "uint8").data.ptr
        assert kernels.workspace >= low + 2 * 4096 + 4096, "behind the slots and the array"
        workspace = cp.ndarray((4096,), cp.uint8, cp.cuda.MemoryPointer(cp.cuda.UnownedMemory(kernels.workspace, 4096, arena), 0))
        assert (workspace.get() == 7).all()
        stream, tile = device.create_stream("copy-in"), arena.tile(0, (64, 64), "float32")
        store = memory_store(TileGrid(64, 64))
        store.write((0, 0), np.eye(64))
        with pytest.raises(
            TypeError, match=r"block \(0, 0\) is stored in fp64.*on cuda:0 is float32: _Fill cannot widen.*copy_stored"
        ):
            device.copy_in(stream, store, (0, 0), tile)
        with pytest.raises(TypeError, match="_Fill cannot widen or round it"):
            device.copy_out(stream, tile, store, (0, 0))
        with pytest.raises(ScheduleError, match="a block has 8192 bytes, but the staging buffers of cuda:0 4096 bytes each"):
            device.copy_stored(stream, ByteBlocks([8192]), (0, 0), cp.empty((1, 8192), cp.uint8))
    assert kernels.is_closed


def test_an_arena_without_slots():
    with closing(open_device(DEVICE, NoKernels())) as device, device.current():
        arena = device.allocate(0, 4096, 1, [ArraySpec(np.dtype(np.float64), (3, 2))])
        arena.arrays[0][...] = 2.0
        assert (arena.arrays[0].get() == 2.0).all()


def test_code_is_compiled_once_for_a_device_and_its_macros():
    import cupy as cp

    from tests.inside.kernels import compiled, load

    with cp.cuda.Device(0):
        assert load("solves.cu") is load("solves.cu")
        assert load("solves.cu") is not load("solves.cu", UNUSED=1)
        assert load("solves.cu", UNUSED=1) is load("solves.cu", UNUSED=1)
        text = 'extern "C" __global__ void number(int* out) { *out = NUMBER; }'
        for number in (3, 4):
            out = cp.zeros(1, cp.int32)
            compiled(f"#define NUMBER {number}\n{text}").get_function("number")((1,), (1,), (out,))
            assert int(out[0]) == number


def test_kernels_take_arguments_of_every_type_from_any_thread():
    import cupy as cp

    from tests.inside.kernels import LaunchedKernel, compiled

    text = """
    struct Pair { int a, b; };
    struct __align__(64) Wide { long long words[8]; };
    extern "C" __global__ void told(
        double* out, int a, const __grid_constant__ Wide wide, Pair pair, long long b, int c, double behind)
    {
        const long long all[] = {a, wide.words[7], pair.b, b, c, (long long)(2 * behind), blockDim.y, gridDim.y};
        if (threadIdx.x + threadIdx.y == 0) out[8 * blockIdx.x + blockIdx.y] = all[blockIdx.x];
    }"""
    behind = np.array(0.5)
    with cp.cuda.Device(0):
        types = "q", "i", "64s", "2i", "q", "i"
        kernel = LaunchedKernel(compiled(text).get_function("told"), types, (4, 2), behind=[behind.ctypes.data])
        stream, out = cp.cuda.Stream(non_blocking=True), cp.zeros((40, 8, 8))
        cp.cuda.runtime.deviceSynchronize()

    def launch(number):
        wide = np.full(8, -number, np.int64).tobytes()
        kernel(stream.ptr, (8, 8), out[number].data.ptr, number, wide, 3, number + 4, -(2**40) - number, -1)

    with ThreadPoolExecutor(8) as threads:  # which have never called CUDA's runtime
        list(threads.map(launch, range(len(out))))
    stream.synchronize()
    wanted = [[k, -k, k + 4, -(2**40) - k, -1, 1, 2, 8] for k in range(len(out))]
    assert (out.get() == np.array(wanted)[:, :, np.newaxis]).all()
