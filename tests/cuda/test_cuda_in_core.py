"""One tile on a GPU, and an L that stays there: right, in the caller's own kind of array, and refused where it should be."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.apps import geostat
from tests.host.matrices import FAMILIES, check_factor
from tests.host.scans import NoKernels
from tests.inside.hardware import open_device
from tests.inside.memory import RELEASER
from tests.inside.runtime import device_for_a_pass
from tests.python_calls import calls_of

pytestmark = pytest.mark.cuda


def on_gpu(a, device=0):
    import cupy as cp

    with cp.cuda.Device(device):
        return cp.asarray(a)


#: Most calls of functions, of Python and its libraries, that a small call takes: 457 before options and kernels were remembered.
CALLS = 340


def test_a_small_call_is_few_calls_of_functions():
    a = on_gpu(FAMILIES["exponential"](64))
    oc.cholesky(a)
    _, calls = calls_of(lambda: oc.cholesky(a))
    assert calls < CALLS


@pytest.mark.parametrize("n", [1, 2, 3, 64, 100, 513, 1025, 2049, 4097])
def test_a_matrix_on_the_gpu_is_one_tile_whose_factor_stays_there(n):
    a = FAMILIES["matern15 nugget 1e-6"](n)
    there = on_gpu(a)
    with oc.cholesky(there) as factor:
        assert factor.report.plan.engine == "library" and factor.tile_size == n and "device" in repr(factor)
        assert np.array_equal(there.get(), a), "A is only read"
        check_factor(factor, a)
        assert np.array_equal(np.triu(np.asarray(factor), 1), np.zeros((n, n)))
        assert factor.logdet() == pytest.approx(np.linalg.slogdet(a)[1], rel=1e-10, abs=1e-9)


@pytest.mark.parametrize("n", [1, 100, 1025, 2049, 4096])
@pytest.mark.parametrize("store", ["host", "device"])
def test_arrays_and_functions_of_the_host_are_one_tile_too(n, store):
    a = FAMILIES["exponential"](n)

    def tile(rows, cols, out, stream):
        out[...] = on_gpu(a[rows.start : rows.stop, cols.start : cols.stop])

    def on_host(rows, cols, out, stream):
        out[...] = a[rows.start : rows.stop, cols.start : cols.stop]

    forms = [a, np.asfortranarray(a), np.tril(a) + np.triu(np.full_like(a, np.nan), 1), oc.from_function(n, on_host, cuda=tile)]
    factors = [oc.cholesky(form, devices="cuda:0", store=store) for form in forms]
    assert all(factor.report.plan.engine == "library" for factor in factors)
    assert all(("device" in repr(factor)) == (store == "device") for factor in factors)
    check_factor(factors[0], a)
    first = np.asarray(factors[0])
    assert all(np.array_equal(np.asarray(factor), first) for factor in factors)


@pytest.mark.parametrize("how", [{}, *({"tile_size": 256, "fp64": fp64} for fp64 in ("native", "residue"))], ids=str)
def test_l_of_a_matrix_in_host_memory_or_a_file_stays_on_the_gpu(how, tmp_path):
    """Unless somebody asks for it elsewhere; what is asked for is copied, and is to the bit what host memory has."""
    n = 1500
    a, b = FAMILIES["matern15 nugget 1e-6"](n), np.random.default_rng(0).standard_normal((n, 3))
    np.save(tmp_path / "a.npy", a)
    with oc.cholesky(a, devices="cuda:0", store="host", **how) as host:
        assert "memory" in repr(host) and "is in host memory" in str(host.report)
        for given in (a, tmp_path / "a.npy", oc.from_function(n, lambda rows, cols, out, stream: cut(a, rows, cols, out))):
            with oc.cholesky(given, devices="cuda:0", **how) as factor:
                assert "device" in repr(factor) and "stays on cuda:0" in str(factor.report)
                dense = np.asarray(factor)
                assert np.array_equal(dense, np.asarray(host)) and dense.flags.writeable and not dense[:-1, -1].any()
                assert np.array_equal(np.asarray(factor, dtype=np.float32), dense.astype(np.float32))
                assert factor.logdet() == host.logdet() and np.array_equal(factor[7:90, :60], host[7:90, :60])
                assert isinstance(factor.solve(b), np.ndarray) and np.allclose(factor.solve(b), host.solve(b), rtol=1e-6)
                assert np.allclose(factor.half_solve(b[:, 0]), host.half_solve(b[:, 0]), rtol=1e-9)
                assert np.allclose(factor @ b, host @ b) and np.allclose(factor.sample(2, 1), host.sample(2, 1))
                factor.save(tmp_path / "l.ooc")
                with oc.load(tmp_path / "l.ooc") as loaded:
                    assert np.array_equal(np.asarray(loaded), dense)
                with factor.update(b, store="host") as updated, factor.update(b) as beside:
                    assert "memory" in repr(updated) and "device" in repr(beside)
                    assert np.array_equal(np.asarray(updated), np.asarray(beside))


def cut(a, rows, cols, out):
    """Fill a tile on the GPU from an array of the host."""
    out[...] = on_gpu(a[rows.start : rows.stop, cols.start : cols.stop])


def test_a_small_array_of_the_host_stays_there_unless_a_gpu_is_named():
    a = FAMILIES["exponential"](200)
    assert oc.cholesky(a).report.plan.devices == ("host:0",) and "memory" in repr(oc.cholesky(a))
    assert oc.cholesky(on_gpu(a)).report.plan.devices == ("cuda:0",)
    assert oc.cholesky(a, devices=1).report.plan.devices == ("cuda:0",)


@pytest.mark.parametrize("n", [1, 100, 1025])
def test_right_hand_sides_are_answered_in_their_kind(n):
    import cupy as cp

    a = FAMILIES["matern15 nugget 1e-6"](n)
    b = np.random.default_rng(0).standard_normal((n, 3))
    exact = np.linalg.solve(a, b)
    factors = {
        "whole": oc.cholesky(on_gpu(a)),
        "tiles": oc.cholesky(on_gpu(a), tile_size=128),
        "host": oc.cholesky(a, devices="cuda:0", store="host"),
    }
    lower = np.linalg.cholesky(a)
    for name, factor in factors.items():
        for rhs in (b, b[:, 0], np.asfortranarray(b), b[:, :0]):
            there = on_gpu(rhs)
            for f, expected in (
                (factor.solve, exact if rhs.ndim == 2 else exact[:, 0]),
                (factor.half_solve, np.linalg.solve(lower, rhs)),
                (lambda y, factor=factor: factor.half_solve(y, transposed=True), np.linalg.solve(lower.T, rhs)),
                (factor.matmul, lower @ rhs),
            ):
                expected = expected[:, : rhs.shape[1]] if rhs.ndim == 2 else expected
                here, gpu = f(rhs), f(there)
                assert isinstance(here, np.ndarray) and isinstance(gpu, cp.ndarray), name
                assert here.shape == gpu.shape == rhs.shape
                scale = 1e-6 * max(1.0, np.abs(expected).max(initial=0))
                assert np.allclose(here, expected, atol=scale) and np.allclose(gpu.get(), expected, atol=scale), name
                assert np.array_equal(there.get(), rhs)


def test_bad_right_hand_sides_are_refused_where_they_lie():
    a = FAMILIES["exponential"](70)
    factor = oc.cholesky(on_gpu(a))
    with pytest.raises(ValueError, match=r"shape \(71,\)"):
        factor.solve(on_gpu(np.ones(71)))
    with pytest.raises(TypeError, match="complex"):
        factor.solve(on_gpu(np.ones(70, complex)))
    bad = np.ones((70, 2))
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"entry \[3, 1\] of the right-hand side is nan"):
        factor.solve(on_gpu(bad))


@pytest.mark.parametrize("n", [50, 700])
def test_failures_name_the_minor_or_the_entry(n):
    a = FAMILIES["exponential"](n)
    bad = a.copy()
    bad[40, 40] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as caught:
        oc.cholesky(on_gpu(bad))
    assert caught.value.minor == 41
    for value in (np.nan, np.inf, -np.inf):
        for place in ((30, 7), (0, 0), (n - 1, n - 1), (n - 1, 0)):
            bad = a.copy()
            bad[place] = value
            with pytest.raises(oc.errors.NonFiniteError) as met:
                oc.cholesky(on_gpu(bad))
            assert (met.value.row, met.value.col) == place
        there = on_gpu(bad)

        def tile(rows, cols, out, stream, there=there):
            out[...] = there[rows.start : rows.stop, cols.start : cols.stop]  # of CuPy: it cannot fill an array of the host

        with pytest.raises(oc.errors.NonFiniteError):
            oc.cholesky(oc.from_function(n, tile), devices="cuda:0")
    above = a.copy()
    above[7, 30] = np.nan
    check_factor(oc.cholesky(on_gpu(above)), a)


@pytest.mark.parametrize("fp64", ["native", "residue"])
@pytest.mark.parametrize(("n", "nb"), [(1300, 128), (640, 128), (129, 128)])
def test_tiles_stay_on_the_gpu_with_the_same_bits(n, nb, fp64):
    a = FAMILIES["matern15 nugget 1e-6"](n)
    options = {"tile_size": nb, "devices": "cuda:0", "fp64": fp64, "memory_budget": "200 MiB"}
    with oc.cholesky(a, store="host", **options) as host, oc.cholesky(a, store="device", **options) as device:
        assert "device" in repr(device) and "memory" in repr(host)
        assert np.array_equal(np.asarray(host), np.asarray(device))
        assert np.array_equal(host.diagonal(), device.diagonal()) and host.logdet() == device.logdet()
        b = np.random.default_rng(0).standard_normal((n, 2))
        assert np.allclose(host.solve(b), device.solve(b), rtol=1e-6)
        assert np.allclose(host.matmul(b), device.matmul(b))
        assert np.array_equal(host.rows(range(3, 100), 60), device.rows(range(3, 100), 60))
        assert np.allclose(host.inverse_diagonal(), device.inverse_diagonal())


def covariances(n):
    sites = np.random.default_rng(1).uniform(size=(n, 2))
    return geostat.covariance_source(geostat.Matern(1.0, 0.05, 0.5, 1e-3), sites)


@pytest.mark.parametrize("fp64", ["native", "residue"])
@pytest.mark.parametrize("threshold", [None, 1e-5])
def test_l_of_a_matrix_made_on_the_gpu_stays_there(fp64, threshold):
    n, source = 1500, covariances(1500)
    options = {"tile_size": 256, "devices": "cuda:0", "fp64": fp64, "memory_budget": "400 MiB"}
    y = np.random.default_rng(0).standard_normal((n, 40))
    with (
        oc.cholesky(source, threshold, store=oc.HostMemory(), **options) as host,
        oc.cholesky(source, threshold, **options) as device,
    ):
        assert "device" in repr(device) and "memory" in repr(host)
        assert device.report.plan.kept_bytes > 0 == host.report.plan.kept_bytes
        assert "stays on cuda:0" in str(device.report) and "stays on" not in str(host.report)
        assert host.formats == device.formats and np.array_equal(np.asarray(host), np.asarray(device))
        assert np.allclose(host.half_solve(y), device.half_solve(y), rtol=1e-9)
        assert np.allclose(host.half_solve(y, transposed=True), device.half_solve(y, transposed=True), rtol=1e-9)
        both = [factor.half_solves(y[:, :3], y) for factor in (host, device)]
        assert all(np.allclose(*pair, rtol=1e-9) for pair in zip(*both, strict=True))
        assert device.logdet() == host.logdet()
        mine, theirs = device.certify(y), host.certify(y)
        assert mine.logdet.gap == pytest.approx(theirs.logdet.gap, rel=1e-2)
        assert mine.logdet.lower <= theirs.logdet.value <= mine.logdet.upper


def test_solves_copy_no_tile_that_lies_on_the_gpu():
    options = {"tile_size": 256, "devices": "cuda:0", "memory_budget": "400 MiB", "trace": True}
    with oc.cholesky(covariances(1500), **options) as factor:
        factor.half_solve(np.ones((1500, 40)))
        records = factor.report.passes.records
        assert records and not [record for record in records if record.kind == "fetch"]


@pytest.mark.multigpu
def test_l_of_a_matrix_made_on_two_gpus_stays_there():
    source, y = covariances(1500), np.random.default_rng(0).standard_normal((1500, 40))
    options = {"tile_size": 128, "devices": ["cuda:0", "cuda:1"], "memory_budget": "400 MiB"}
    with oc.cholesky(source, store=oc.HostMemory(), **options) as host, oc.cholesky(source, **options) as device:
        assert "device" in repr(device) and np.array_equal(np.asarray(host), np.asarray(device))
        assert np.allclose(host.solve(y), device.solve(y), rtol=1e-6)


def test_fits_keep_l_on_the_gpu():
    sites = np.random.default_rng(3).uniform(size=(1200, 2))
    observations = geostat.make_observations(sites, np.sin(9 * sites[:, 0]) + sites[:, 1])
    for threshold in (None, 1e-5):
        settings = geostat.FactorSettings(devices="cuda:0", tile_size=256, memory_budget="400 MiB", precision_threshold=threshold)
        with geostat.KeptFactor() as kept:
            here = replace(settings, kept=kept)
            result = geostat.fit(observations, smoothness=1.5, settings=here)
            found = geostat.predict(observations, result.model, [[0.5, 0.5]], settings=here)
            assert kept.memory.nbytes == 0
        host = replace(settings, memory=oc.HostMemory())
        assert geostat.fit(observations, smoothness=1.5, settings=host).loglik == pytest.approx(result.loglik, abs=1e-4)
        beside = geostat.predict(observations, result.model, [[0.5, 0.5]], settings=host)
        assert found.mean == pytest.approx(beside.mean, rel=1e-4)


def test_garbage_waits_for_the_end_of_a_capture():
    import cupy as cp

    from tests.inside.hardware import cuda_stream

    class Knot:
        pass

    before = gc.get_threshold()
    with device_for_a_pass(lambda: open_device("cuda:0", NoKernels()), nullcontext()) as device:
        stream, target = device.create_stream("captured"), cp.zeros(4)
        knot = Knot()
        knot.itself, knot.memory = knot, cp.cuda.Memory(1 << 20)  # what frees it may not run while a stream is captured
        del knot
        gc.set_threshold(1, 1, 1)
        try:

            def enqueue():
                made = [[number] for number in range(1000)]
                with cuda_stream(stream).stream:
                    target.fill(len(made))

            launch = device.captured(stream, enqueue)
        finally:
            gc.set_threshold(*before)
        launch()
        stream.synchronize()
        assert target.get().tolist() == [1000.0] * 4


def test_mixed_precision_stays_on_the_gpu():
    a = FAMILIES["exponential"](1500)
    options = {"precision_threshold": 1e-5, "objective": "bytes", "tile_size": 128, "devices": "cuda:0"}
    with oc.cholesky(a, store="host", **options) as host, oc.cholesky(a, **options) as device:
        assert "memory" in repr(host) and "device" in repr(device)
        assert host.formats == device.formats and len(host.formats) > 1
        assert np.array_equal(np.asarray(host), np.asarray(device))
        assert device.report.certified_bound.total <= 1e-5


def test_libraries_get_the_factor_where_it_is(tmp_path):
    import cupy as cp

    a = FAMILIES["exponential"](300)
    lower = np.linalg.cholesky(a)
    for factor in (oc.cholesky(on_gpu(a)), oc.cholesky(on_gpu(a), tile_size=64)):
        with factor:
            assert np.allclose(cp.asarray(factor).get(), lower)
            assert np.allclose(cp.from_dlpack(factor).get(), lower)
            factor.save(tmp_path / "l.ooc")
            with oc.load(tmp_path / "l.ooc") as loaded:
                assert np.array_equal(np.asarray(loaded), np.asarray(factor))
        (tmp_path / "l.ooc").unlink()
    factor = oc.cholesky(on_gpu(a))
    taken = cp.asarray(factor)
    factor.close()
    other = [cp.full((300, 300), 7.0) for _ in range(20)]  # would reuse memory that was given back
    assert np.allclose(taken.get(), lower) and len(other) == 20
    with oc.cholesky(a, store="host") as factor:
        assert not hasattr(factor, "__cuda_array_interface__")
        assert np.allclose(np.from_dlpack(factor), lower)


def test_an_l_that_does_not_fit_on_the_gpu_is_refused_or_goes_to_the_host():
    a = on_gpu(FAMILIES["exponential"](3000))
    with pytest.raises(oc.BudgetError, match="an L that stays there"):
        oc.cholesky(a, store="device", tile_size=256, devices="cuda:0", memory_budget="30 MiB")
    assert "memory" in repr(oc.cholesky(a, tile_size=256, memory_budget="160 MiB", fp64="native", store=oc.HostMemory()))


@pytest.mark.alone
def test_closing_gives_the_memory_back():
    import cupy as cp

    a = FAMILIES["exponential"](6000)
    RELEASER.release_now()
    free = cp.cuda.runtime.memGetInfo()[0]
    with oc.cholesky(a, store="device", tile_size=1024, devices="cuda:0", memory_budget="2 GiB"):
        assert cp.cuda.runtime.memGetInfo()[0] < free
    with oc.cholesky(a, store="device", tile_size=1024, devices="cuda:0", memory_budget="2 GiB"):
        pass
    RELEASER.release_now()  # what happens two seconds later
    assert cp.cuda.runtime.memGetInfo()[0] > free - (600 << 20)


@pytest.mark.multigpu
@pytest.mark.parametrize("fp64", ["native", "residue"])
def test_tiles_stay_on_the_gpus_that_made_them(fp64):
    a = FAMILIES["matern15 nugget 1e-6"](1300)
    options = {"tile_size": 128, "devices": ["cuda:0", "cuda:1"], "fp64": fp64, "memory_budget": "200 MiB"}
    b = np.random.default_rng(0).standard_normal((1300, 2))
    with oc.cholesky(a, store="host", **options) as host, oc.cholesky(a, store="device", **options) as device:
        assert np.array_equal(np.asarray(host), np.asarray(device))
        assert np.allclose(host.solve(b), device.solve(b), rtol=1e-6)
        assert np.allclose(host.matmul(b), device.matmul(b))


@pytest.mark.multigpu
def test_a_matrix_on_the_second_gpu_is_factored_there():
    import cupy as cp

    a = FAMILIES["exponential"](500)
    with oc.cholesky(on_gpu(a, 1)) as factor:
        assert factor.report.plan.devices == ("cuda:1",)
        check_factor(factor, a)
        x = factor.solve(on_gpu(np.ones(500), 1))
        assert x.device.id == 1 and np.allclose(x.get(), np.linalg.solve(a, np.ones(500)))
        y = factor.solve(on_gpu(np.ones(500), 0))
        assert y.device.id == 0 and np.allclose(y.get(), x.get())
    with oc.cholesky(on_gpu(a, 1), devices="cuda:0") as factor:
        assert factor.report.plan.devices == ("cuda:0",)
        check_factor(factor, a)
    assert cp.cuda.Device().id == 0


@pytest.mark.package("torch")
def test_tensors_of_torch_are_answered_by_tensors():
    torch = pytest.importorskip("torch")
    a = FAMILIES["exponential"](200)
    there = torch.from_numpy(a).cuda()
    with oc.cholesky(there) as factor:
        x = factor.solve(torch.ones(200, dtype=torch.float64).cuda())
        assert isinstance(x, torch.Tensor) and x.is_cuda
        assert np.allclose(x.cpu().numpy(), np.linalg.solve(a, np.ones(200)))
        assert np.allclose(torch.from_dlpack(factor).cpu().numpy(), np.linalg.cholesky(a))
