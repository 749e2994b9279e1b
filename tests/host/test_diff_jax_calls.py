"""Calls from programs of JAX to where they compute, here on the host: what the header says, buffers, errors, threads, solves.

On a GPU the same handler views the buffers by CuPy (tests/cuda/test_cuda_jax.py).
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol.diff import Pattern
from tests.diff_jax_problems import OPERATIONS, arguments, poisson, solvable

pytestmark = [pytest.mark.host, pytest.mark.package("jax")]

#: Operations that are calls on a GPU.
CALLED = [
    name
    for name in OPERATIONS
    if any(word in name for word in ("solve", "iangle", "unit", "log", "inverse", "Chol", "sample of"))
]


@pytest.fixture(autouse=True)
def wide():
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture
def sparse():
    import ooc_chol.diff.jax

    return ooc_chol.diff.jax


@pytest.fixture
def called():
    """Programs for the host compute solves and operations of positive definite matrices by calls, too."""
    import jax
    from jax.interpreters import mlir

    from tests.inside.diff import definite_call, definite_on_the_host, definite_p, lowering, solve_lowered, solve_p

    jax.clear_caches()
    mlir.register_lowering(solve_p, lowering(lambda solver, trans, wide: solver.call(trans), "cpu"), platform="cpu")
    mlir.register_lowering(definite_p, lowering(definite_call, "cpu"), platform="cpu")
    yield
    mlir.register_lowering(solve_p, solve_lowered, platform="cpu")
    mlir.register_lowering(definite_p, definite_on_the_host, platform="cpu")
    jax.clear_caches()


@pytest.fixture
def program():
    """Compile a function of NumPy's arrays as a call: its results have the shapes and types that are told."""
    import jax
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    from tests.inside.diff import call_of, lowering

    def made(function, *results):
        pattern = Pattern([0], [], (0, 0))
        call = call_of(pattern, f"{function} {id(function)}", function)
        primitive = Primitive("called")
        primitive.multiple_results = True
        primitive.def_abstract_eval(lambda *given, call: [jax.core.ShapedArray(shape, dtype) for shape, dtype in results])
        mlir.register_lowering(primitive, lowering(lambda call: call, "cpu"))
        return jax.jit(lambda *given: primitive.bind(*given, call=call))

    return made


def header() -> str:
    import jax

    return Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text(encoding="utf-8")


def test_the_header_of_this_jax_is_the_one_that_structs_were_taken_from():
    from tests.inside.diff import FUNCTIONS, Frame, frames

    text = header()
    found = re.findall(r"^  _XLA_FFI_API_STRUCT_FIELD\(XLA_FFI_(\w+)\);", text, re.MULTILINE)
    found = [name.replace("TypeId", "Type") for name in found]  # as it was called before 0.2
    assert tuple(found[: len(FUNCTIONS)]) == FUNCTIONS
    numbers = {name: int(value) for name, value in re.findall(r"(?:#define )?XLA_FFI_(\w+)(?: =|) (\d+)", text)}
    assert numbers["API_MAJOR"] == frames.MAJOR and numbers["API_MINOR"] >= 1
    named = ("DataType_F32", "DataType_F64", "Extension_Metadata", "AttrType_STRING", "Error_Code_INTERNAL")
    assert [numbers[name] for name in named] == [11, 12, 1, 4, 13]
    (fields,) = re.findall(r"struct XLA_FFI_CallFrame \{(.*?)\n\};", text, re.DOTALL)
    words = re.findall(r"(\w+);", re.sub(r"//.*", "", fields))
    assert words[:8] == ["struct_size", "extension_start", "api", "ctx", "stage", "args", "rets", "attrs"]
    assert len(words[:8]) == len(Frame._fields_)


def test_arguments_and_several_results_of_every_type_and_shape(program):
    rng = np.random.default_rng(0)
    shapes = [(), (0,), (5,), (3, 4), (2, 3, 4), (0, 7)]
    given = [rng.standard_normal(shape).astype(dtype) for shape in shapes for dtype in (np.float32, np.float64)]
    seen = []

    def function(*arrays):
        seen[:] = [(each.shape, each.dtype) for each in arrays]
        return tuple(2 * each for each in reversed(arrays))

    compiled = program(function, *((each.shape, each.dtype) for each in reversed(given)))
    found = compiled(*given)
    assert seen == [(each.shape, each.dtype) for each in given]
    for one, other in zip(found, reversed(given), strict=True):
        assert one.dtype == other.dtype and np.array_equal(one, 2 * other)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("of one\0 and ü"), "ValueError: of one and ü"),
        (oc.errors.SingularMatrixError("A", "it is 0", "mend it", 3), "SingularMatrixError"),
        (KeyboardInterrupt("stop"), "KeyboardInterrupt: stop"),
        (SystemExit(2), "SystemExit: 2"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_errors_are_told_to_the_program_and_raised_as_they_are_outside(program, error, text):
    import jax

    from tests.inside.diff import finished

    wrong = [True]

    def function(x):
        if wrong[0]:
            raise error
        return x + 1

    compiled = program(function, ((3,), np.float64))
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        jax.block_until_ready(compiled(np.zeros(3)))
    if "\0" not in str(error):
        with pytest.raises(type(error)) as caught:
            finished(compiled, np.zeros(3))
        assert caught.value is error
    wrong[0] = False
    assert np.array_equal(compiled(np.zeros(3))[0], np.ones(3))


def test_a_result_of_another_shape_and_a_call_that_nobody_has_are_refused(program):
    import jax

    compiled = program(lambda x: x[:1], ((3,), np.float64))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"has shape \(1,\), but \(3,\) was compiled"):
        jax.block_until_ready(compiled(np.zeros(3)))
    strange = jax.ffi.ffi_call("ooc_chol_call", jax.ShapeDtypeStruct((3,), np.float64))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"a compiled function computes nothing.*compile it again"):
        jax.block_until_ready(jax.jit(partial(strange, call="nothing"))(np.zeros(3)))
    with pytest.raises(jax.errors.JaxRuntimeError, match="array of its type 4"):
        jax.block_until_ready(program(lambda x: x, ((3,), np.float64))(np.zeros(3, np.int32)))


def test_the_runtime_is_asked_for_its_device_and_answers_with_errors(program, monkeypatch):
    from tests.inside.diff import frames, jax_device_calls

    run, told = jax_device_calls._run, []

    def asking(frame, viewed):
        told.append(frames.device(frame))
        with pytest.raises(RuntimeError, match=r"XLA answers Stream_Get with an error: .*GPU"):
            frames.stream(frame)
        run(frame, viewed)

    monkeypatch.setattr(jax_device_calls, "_run", asking)
    assert np.array_equal(program(lambda x: x + 1, ((3,), np.float64))(np.zeros(3))[0], np.ones(3))
    assert told == [0]


def test_buffers_of_a_gpu_are_viewed_on_its_stream(program, monkeypatch):
    """NumPy in CuPy's place, and the host's memory in that of GPU 0."""
    from tests.inside.diff import frames, jax_device_calls

    log = []

    def ndarray(shape, dtype, pointer):
        memory = (ctypes.c_char * pointer["size"]).from_address(pointer["address"])
        return np.frombuffer(memory, dtype).reshape(shape)

    @contextmanager
    def borrowed(*stream):
        log.append(stream)
        yield
        log.append("left")

    cuda = SimpleNamespace(
        Device=lambda number: borrowed("GPU", number),
        Stream=SimpleNamespace(from_external=lambda given: borrowed("stream", given.__cuda_stream__()[1]), null=None),
        UnownedMemory=lambda address, size, owner, device: {"address": address, "size": size, "device": (owner, device)},
        MemoryPointer=lambda memory, offset: {**memory, "offset": offset},
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, ndarray=ndarray, empty=np.empty))
    spec = importlib.util.spec_from_file_location("exchange_on_the_host", Path(oc.__file__).parent / "kernels/cuda/exchange.py")
    exchange = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exchange)
    monkeypatch.setattr(jax_device_calls, "import_module", lambda name: exchange)
    monkeypatch.setattr(frames, "stream", lambda frame: 7)
    run = jax_device_calls._run

    def on_a_gpu(frame, viewed):
        jax_device_calls._run = run
        jax_device_calls._on_a_gpu(frame)

    monkeypatch.setattr(jax_device_calls, "_run", on_a_gpu)
    found = program(lambda x, none: (x + 1, none), ((2, 3), np.float32), ((0, 4), np.float64))(
        np.zeros((2, 3), np.float32), np.zeros((0, 4))
    )
    assert np.array_equal(found[0], np.ones((2, 3))) and found[1].shape == (0, 4)
    assert log == [("GPU", 0), ("stream", 7), "left", "left"]


def test_a_compiled_program_keeps_what_it_calls(sparse, called):
    import jax

    def compiled(factor):
        A = sparse.CSR.of(poisson(7) * factor)
        return jax.jit(lambda values, b: sparse.solve(sparse.CSR(values, A.pattern), b)).lower(A.values, np.ones(49)).compile()

    program = compiled(1.0)
    jax.clear_caches()
    gc.collect()
    matrix = poisson(7) * 3.0
    matrix.sort_indices()
    assert np.allclose(matrix @ np.asarray(program(matrix.data, np.ones(49))), 1.0)


@pytest.mark.parametrize("name", CALLED)
def test_values_and_derivatives_by_calls_are_those_by_callbacks(sparse, called, name):
    import jax

    function, names = OPERATIONS[name]
    given = arguments(sparse, names)

    def loss(*given):
        found = function(sparse, *given)
        return (found**2).sum(), found

    every = tuple(range(len(given)))
    derivative = jax.grad(loss, every, has_aux=True)
    second = jax.grad(lambda *given: sum((g**2).sum() for g in jax.tree.leaves(derivative(*given)[0])), every)
    for each in (derivative, second):
        compiled = jax.jit(each)
        text = compiled.lower(*given).as_text()
        assert "ooc_chol_call" in text and "callback" not in text
        for one, other in zip(jax.tree.leaves(compiled(*given)), jax.tree.leaves(each(*given)), strict=True):
            assert one.dtype == other.dtype and np.allclose(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mapped", [(None, 0), (0, None), (0, 0)], ids=["vectors", "values", "both"])
def test_vmap_by_calls(sparse, called, mapped, dtype):
    import jax
    import jax.numpy as jnp

    A = sparse.CSR.of(solvable().astype(dtype))
    values = jnp.stack([A.values, 2 * A.values, A.values + 1]) if mapped[0] == 0 else A.values
    b = jnp.asarray(np.random.default_rng(0).standard_normal((3, 6) if mapped[1] == 0 else 6), dtype)
    every = jax.vmap(lambda values, b: sparse.solve(sparse.CSR(values, A.pattern), b), mapped)
    found = jax.jit(every)(values, b)
    assert found.dtype == dtype and np.allclose(found, every(values, b), rtol=1e-5 if dtype == np.float32 else 1e-12)
    inner = jax.jit(jax.vmap(lambda values: sparse.logdet(sparse.CSR(values, (A @ A.T).pattern))))
    definite = jnp.stack([(A @ A.T).values, 2 * (A @ A.T).values])
    log = np.linalg.slogdet((A @ A.T).to_dense().astype(np.float64))[1]
    assert np.allclose(inner(definite), [log, log + 6 * np.log(2)], rtol=1e-5)


def test_float32_where_64_bit_types_are_off(sparse, called):
    import jax

    with jax.enable_x64(False):
        A = sparse.CSR.of(poisson(6, np.float32))
        gradient = jax.jit(jax.grad(lambda A: sparse.solve(A, np.ones(36, np.float32)).sum()))(A)
        assert gradient.dtype == np.float32 and np.isfinite(gradient.values).all()


def test_equal_values_use_one_factor(sparse, called):
    import jax

    from tests.inside.diff import CACHE

    A = sparse.CSR.of(poisson(8) * 1.75)
    function = jax.jit(jax.grad(lambda A, b: (sparse.solve(A, b) ** 2).sum()))
    before = CACHE.factored
    jax.block_until_ready(function(A, np.ones((64, 3))))
    jax.block_until_ready(function(sparse.CSR(np.array(A.values), A.pattern), np.ones((64, 3)) + 1))
    assert CACHE.factored == before + 1


def test_a_singular_matrix_names_its_column(sparse, called):
    import jax

    from tests.inside.diff import finished

    A = sparse.CSR(np.array([1.0, 1.0, 0.0]), Pattern([0, 1, 2, 3], [0, 1, 2], (3, 3)))
    solve = jax.jit(sparse.solve)
    with pytest.raises(jax.errors.JaxRuntimeError, match="column 2"):
        jax.block_until_ready(solve(A, np.ones(3)))
    with pytest.raises(oc.errors.SingularMatrixError) as caught:
        finished(solve, A, np.ones(3))
    assert caught.value.column == 2


def test_threads_call_at_once(sparse, called):
    import jax

    A = poisson(12)
    matrix = sparse.CSR.of(A)
    solve = jax.jit(lambda factor, b: sparse.solve(matrix * factor, b))

    def residual(number):
        with jax.enable_x64(True):
            b = np.random.default_rng(number).standard_normal(144)
            return float(np.abs((number % 3 + 1) * (A @ np.asarray(solve(number % 3 + 1.0, b))) - b).max())

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(residual, range(40))) < 1e-12


@pytest.mark.parametrize("jit", [True, False], ids=["jit", "jit disabled"])
@pytest.mark.parametrize("name", ["solve", "solve with the transpose and columns", "log-determinant", "sample"])
def test_arrays_that_lie_on_a_gpu_are_called_with_outside_of_jit_too(sparse, called, monkeypatch, name, jit):
    import jax

    from tests.inside.diff import jax_device_calls

    function, names = OPERATIONS[name]
    given = arguments(sparse, names)
    derivative = jax.grad(lambda *given: (function(sparse, *given) ** 2).sum())
    expected, seen, run = derivative(*given), [], jax_device_calls._run
    for answer in ("is_on_gpu", "has_cupy", "has_cudss"):
        monkeypatch.setattr(jax_device_calls, answer, lambda *_: True)
    monkeypatch.setattr(jax_device_calls, "_run", lambda *frame: (seen.append(1), run(*frame)))
    with jax.disable_jit(not jit):
        assert np.allclose(derivative(*given).values, expected.values, rtol=1e-11, atol=1e-11)
    assert len(seen) >= 2
    singular = sparse.CSR(np.array([1.0, 1.0, 0.0]), Pattern([0, 1, 2, 3], [0, 1, 2], (3, 3)))
    with jax.disable_jit(not jit):
        with pytest.raises(oc.errors.SingularMatrixError, match="column 2") as caught:
            sparse.solve(singular, np.ones(3))
        assert caught.value.column == 2
        with pytest.raises(oc.errors.NotPositiveDefiniteError):
            sparse.logdet(singular)


@pytest.mark.parametrize("cudss", [False, True])
def test_programs_for_gpus_call_there_where_something_solves_there(sparse, monkeypatch, cudss):
    import jax

    from tests.inside.diff import jax_device_calls

    monkeypatch.setattr(jax_device_calls, "has_cupy", lambda: True)
    monkeypatch.setattr(jax_device_calls, "has_cudss", lambda: cudss)
    A, b = sparse.CSR.of(solvable()), np.ones(6)

    def text(function, *given):
        return jax.jit(function).trace(*given).lower(lowering_platforms=("cuda",)).as_text()

    assert "ooc_chol_call" in text(sparse.triangular_solve, A.tril(), b)
    assert "ooc_chol_call" in text(jax.grad(sparse.logdet), A @ A.T)
    if cudss:
        of_solve = text(jax.grad(lambda A: sparse.solve(A, b).sum()), A)
        assert "solve, None, auto, False of 6 x 6" in of_solve and "solve, None, auto, True of 6 x 6" in of_solve
        assert "ooc_chol_call" in text(partial(sparse.solve, method="cudss"), A, b)
    else:
        with pytest.raises(ImportError, match=r"needs cuDSS.*cuda13-direct"):
            text(partial(sparse.solve, method="cudss"), A, b)
    for method in ("superlu",) if cudss else ("superlu", "auto"):
        with pytest.raises(ValueError, match="platform"):  # a callback of a host that has no such GPU
            text(partial(sparse.solve, method=method), A, b)


def test_cudss_is_refused_for_arrays_of_the_host_within_jit_too(sparse):
    import jax

    with pytest.raises(ValueError, match=r"A and b lie in host memory: move them by jax\.device_put"):
        jax.jit(partial(sparse.solve, method="cudss"))(sparse.CSR.of(solvable()), np.ones(6))
