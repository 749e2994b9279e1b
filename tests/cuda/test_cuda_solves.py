"""Solves, sums over the inverse and products on a GPU: the checks of the host device, formats, and agreement with the host."""

from __future__ import annotations

import itertools
from contextlib import closing

import numpy as np
import pytest

import ooc_chol as oc
from tests.builders import device_solver, factor_over, open_device
from tests.host.device_solves import SHAPES, check_half_solve_sums, check_inverse_sums, check_product, check_solves
from tests.host.stored_factors import MIXED_STORES, STORES, lapack_factor, random_spd, write_factor
from tests.host.typed import matrix
from tests.inside.bench import CovarianceProblem
from tests.inside.dense import MOST_IN_BATCHES, LocalPlace, device_sweeps, solve
from tests.inside.precision import FORMATS, TYPES
from tests.inside.runtime import Pass
from tests.inside.tasks import TileGrid
from tests.tolerances import gamma

pytestmark = pytest.mark.cuda
DEVICE = "cuda:0"


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_solves(kind, shape, tmp_path):
    check_solves(DEVICE, kind, shape, tmp_path)


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_over_the_inverse(kind, shape, tmp_path):
    check_inverse_sums(DEVICE, kind, shape, tmp_path)


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_over_half_solves(kind, shape, tmp_path):
    check_half_solve_sums(DEVICE, kind, shape, tmp_path)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (300, 9), (5000, 40)])
def test_products(n, m):
    check_product(DEVICE, n, m)


@pytest.mark.parametrize("kind", MIXED_STORES)
def test_tiles_of_narrow_formats_are_widened_on_the_way(kind, tmp_path):
    grid, names = TileGrid(150, 32), itertools.cycle(FORMATS)
    formats = [FORMATS["fp64"] if i == j else FORMATS[next(names)] for i, j in grid.tiles()]
    store = MIXED_STORES[kind](grid, formats, tmp_path)
    write_factor(lapack_factor(random_spd(150, seed=3, condition=10.0)), store)
    b = np.random.default_rng(0).standard_normal((150, 40))
    x = b.copy()
    solve(device_solver(DEVICE, 1 << 28), store, x, transposed=(False, True), run=Pass(""))
    with factor_over(store) as host:
        # the same system, whose matrix has a condition of about ten
        np.testing.assert_allclose(x, host.solve(b), atol=1e3 * gamma(150) * np.abs(x).max())


def triangle(rows: int, seed: int = 0) -> np.ndarray:
    """A factor of a matrix with a condition of 1e6, and no numbers above its diagonal, which nobody may read."""
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.standard_normal((rows, rows)))
    factor = np.linalg.cholesky((q * np.geomspace(1.0, 1e-6, rows)) @ q.T)
    factor[np.triu_indices(rows, 1)] = np.nan
    return factor


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 130, 500, 1024])
def test_substitution_is_backward_stable_and_reads_the_lower_triangle_alone(rows, transposed):
    import cupy as cp

    factor = triangle(rows)
    full = np.tril(np.nan_to_num(factor))
    given, rng = cp.asarray(factor), np.random.default_rng(1)
    with closing(open_device(DEVICE)) as device, device.current():
        device.allocate(1, 8 * rows * rows, rows)
        kernels, stream = device.kernels.create_solves(), device.create_stream("solves")
        for columns in (1, 2, 15, 16, 17, 66, 512, 513):
            b = rng.standard_normal((rows, columns))
            found = []
            for _ in range(3):
                x = cp.asarray(b)
                cp.cuda.Device().synchronize()
                kernels.substitute(stream, given, x, transposed=transposed)
                stream.synchronize()
                found.append(x.get())
            assert all(each.tobytes() == found[0].tobytes() for each in found)
            a = full.T if transposed else full
            left, size = np.abs(b - a @ found[0]), np.abs(a) @ np.abs(found[0])
            assert np.all(left <= gamma(rows + 1) * size + 1e-300), columns


def test_substitutions_in_many_streams_of_a_busy_gpu_end_with_the_same_bits():
    import cupy as cp

    rows, columns = 2048, 66
    given, b = cp.asarray(triangle(rows)), np.random.default_rng(1).standard_normal((rows, columns))
    with closing(open_device(DEVICE)) as device, device.current():
        device.allocate(1, 8 * rows * rows, rows)
        kernels = device.kernels.create_solves()
        streams = [device.create_stream(f"solves {number}", is_urgent=number % 2 == 1) for number in range(8)]
        xs = [cp.asarray(b) for _ in streams]
        busy, load = cp.ones((6000, 6000)), cp.cuda.Stream(non_blocking=True)
        cp.cuda.Device().synchronize()
        with load:
            kept = [busy @ busy for _ in range(4)]
        for _ in range(25):
            for stream, x in zip(streams, xs, strict=True):
                kernels.substitute(stream, given, x, transposed=False)
                kernels.substitute(stream, given, x, transposed=True)
        cp.cuda.Device().synchronize()
        del kept  # until then
        first = xs[0].get().tobytes()
        assert all(x.get().tobytes() == first for x in xs)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_with_tiles_of_a_row_and_their_sums(dtype, transposed):
    import cupy as cp

    rng, (count, rows, nb) = np.random.default_rng(0), (5, 70, 96)

    def numbers(*shape):
        entries = rng.standard_normal((2, *shape))
        return (entries[0] + 1j * entries[1] if dtype.startswith("c") else entries[0]).astype(dtype)

    apart = numbers(count, rows * nb + 32)  # tiles of a row begin at pages
    tiles = apart[:, : rows * nb].reshape(count, rows, nb)
    with closing(open_device(DEVICE, fmt=TYPES[dtype])) as device, device.current():
        device.allocate(1, np.dtype(dtype).itemsize * nb * nb, nb)
        kernels, stream = device.kernels.create_solves(), device.create_stream("solves")
        on_gpu = cp.asarray(apart)[:, : rows * nb].reshape(count, rows, nb)
        for m in (1, 2, 17, 66):
            x = numbers(rows, m) if transposed else numbers(count, nb, m)
            shape = (count, nb if transposed else rows, m)
            given = cp.asarray(x)
            out = cp.full(shape, np.nan, dtype)
            targets = numbers(3, *shape[1:]), numbers(2 * 3, *shape[1:])
            one, every_other = map(cp.asarray, targets)
            cp.cuda.Device().synchronize()
            kernels.multiply_each(stream, out, on_gpu, given, transposed=transposed)
            kernels.subtract_products(stream, one[:1], out[None], [0])
            kernels.subtract_products(stream, every_other[::2], out[1:4, None], [0, 2])
            stream.synchronize()
            exact = np.matmul(tiles.conj().swapaxes(1, 2) if transposed else tiles, x)
            sizes = np.matmul(np.abs(tiles.swapaxes(1, 2) if transposed else tiles), np.abs(x))
            bound = 4 * rows * np.finfo(dtype).eps * sizes
            found = out.get()
            assert np.all(np.abs(found - exact) <= bound)
            for product in found:  # one after the other
                targets[0][0] -= product
            targets[1][:5:4] -= found[1:4:2]
            assert np.array_equal(one.get(), targets[0]) and np.array_equal(every_other.get(), targets[1])


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_an_l_on_a_gpu_solves_by_batches_of_tiles(dtype, monkeypatch):
    n = 4000
    options = {"devices": DEVICE, "tile_size": 256, "memory_budget": "700 MiB", "store": "device", "dtype": dtype}
    with oc.cholesky(matrix("exponential", n, dtype), **options) as here:
        for columns in (1, 66, MOST_IN_BATCHES, MOST_IN_BATCHES + 1):
            b = np.random.default_rng(0).standard_normal((n, columns)).astype(dtype)
            plain = here.half_solve(b), here.half_solve(b, transposed=True)
            with monkeypatch.context() as changed:
                changed.setattr(device_sweeps, "TEAM_BYTES", 0)
                by_batches = here.half_solve(b), here.half_solve(b, transposed=True)
                again = here.half_solve(b), here.half_solve(b, transposed=True)
            for one, two, three in zip(plain, by_batches, again, strict=True):
                assert two.tobytes() == three.tobytes()
                if columns > MOST_IN_BATCHES:
                    assert one.tobytes() == two.tobytes()
                np.testing.assert_allclose(two, one, atol=1e5 * np.finfo(dtype).eps * np.abs(one).max())


def test_a_factor_made_on_a_gpu_solves_there_as_on_the_host():
    n = 6000
    problem = CovarianceProblem(n)
    source = oc.from_function(n, problem.host_tile, cuda=problem.cuda_tile())
    b = np.random.default_rng(0).standard_normal((n, 64))
    with oc.cholesky(source, devices=DEVICE, tile_size=1024, memory_budget="400 MB") as factor:
        device = factor.half_solve(b), factor.solve(b), factor.inverse_diagonal(), factor.inverse_traces([source])
        factor._place = LocalPlace()
        host = factor.half_solve(b), factor.solve(b), factor.inverse_diagonal(), factor.inverse_traces([source])
    for ours, theirs in zip(device[:3], host[:3], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8 * np.abs(theirs).max())
    # tr(inv(A) A) = n
    assert device[3].products[0] == pytest.approx(n, rel=1e-10)
    np.testing.assert_allclose(device[3].diagonal, host[3].diagonal, rtol=1e-10)
