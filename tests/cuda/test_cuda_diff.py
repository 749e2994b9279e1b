"""Differentiable sparse operations on a GPU: within the bounds of the host's, with the same bits, on the current stream."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_chol.diff import Pattern, vjp
from tests.diff_problems import (
    CASES,
    LENGTHS,
    check_bilinear,
    check_product,
    check_sampled,
    numbers,
    pattern_of,
    short_rows,
    triples,
)
from tests.inside.diff import Contract, MatMul, Sampled, TransposedMatMul, functions, primitives

pytestmark = pytest.mark.cuda

WIDTHS = [(), (0,), (1,), (2,), (3,), (5,), (6,), (8,), (64,), (130,), (260,)]


@pytest.fixture(scope="module")
def pattern():
    """Rows of all sorts, then 4,000 short ones."""
    return pattern_of(LENGTHS + short_rows(4000))


def moved(*arrays):
    """Copies on the GPU."""
    import cupy as cp

    return tuple(cp.asarray(array) for array in arrays)


@pytest.mark.parametrize("width", WIDTHS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_products_and_samples_are_within_their_bounds(case, width, pattern):
    v, x, g = (
        numbers(pattern.nnz, case),
        numbers((pattern.n_columns, *width), case, 5),
        numbers((pattern.n_rows, *width), case, 6),
    )
    on_v, on_x, on_g = moved(v, x, g)
    check_product(primitives.matmul(pattern, on_v, on_x, precision=case.precision).get(), pattern, v, x, case)
    check_sampled(primitives.sampled(pattern, on_g, on_x, precision=case.precision).get(), pattern, g, x, case)
    found = primitives.matmul_transposed(pattern, on_v, on_g, precision=case.precision)
    check_product(found.get(), pattern.transposed, v[pattern.transposing], g, case)
    permuted = primitives.permute(on_v, pattern.place("transposing", on_v))
    assert np.array_equal(permuted.get(), v[pattern.transposing])
    assert found.tobytes() == primitives.matmul(pattern.transposed, permuted, on_g, precision=case.precision).tobytes()


@pytest.mark.parametrize("places", [np.int32, np.int64])
@pytest.mark.parametrize("case", CASES)
def test_sums_of_products_and_of_rows_are_within_their_bounds(case, places, pattern):
    import cupy as cp

    a, b = numbers(90_000, case, 5), numbers(110_000, case, 6)
    given = triples(pattern, a.size, b.size, places)
    found = primitives.bilinear(*moved(*given), *moved(a, b), precision=case.precision)
    check_bilinear(found.get(), *given, a, b, case)
    v = numbers(pattern.nnz, case)
    sums = primitives.row_sums(pattern, cp.asarray(v), precision=case.precision).get()
    nothing = np.zeros(v.size, int)
    check_bilinear(sums, pattern.indptr, np.arange(v.size), nothing, v, np.ones(1, case.storage), case)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("case", CASES[::2])
def test_gathers_scatters_and_spreads_have_the_bits_of_the_host(case, dtype, pattern):
    import cupy as cp

    v, d = numbers(5000, case), numbers(pattern.n_rows, case)
    at = np.random.default_rng(5).permutation(5000)[:3000].astype(dtype)
    at[::7] = -1
    assert np.array_equal(primitives.gather(*moved(v, at)).get(), primitives.gather(v, at))
    assert np.array_equal(primitives.scatter(*moved(v[:3000], at), 5000).get(), primitives.scatter(v[:3000], at, 5000))
    assert np.array_equal(primitives.spread(pattern, cp.asarray(d)).get(), primitives.spread(pattern, d))
    nothing = np.zeros(0, dtype)
    assert primitives.gather(*moved(v[:0], nothing)).shape == (0,)
    assert not primitives.scatter(*moved(v[:0], nothing), 3).any()


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [1], [1025], [0, 5000, 0], [2, 0]])
@pytest.mark.parametrize("width", [(), (2,)], ids=str)
def test_small_and_empty_patterns(lengths, width):
    case, small = CASES[2], pattern_of(lengths)
    v, x, g = numbers(small.nnz, case), numbers((small.n_columns, *width), case), numbers((small.n_rows, *width), case)
    on_v, on_x, on_g = moved(v, x, g)
    check_product(primitives.matmul(small, on_v, on_x).get(), small, v, x, case)
    check_product(primitives.matmul_transposed(small, on_v, on_g).get(), small.transposed, v[small.transposing], g, case)
    check_sampled(primitives.sampled(small, on_g, on_x).get(), small, g, x, case)


@pytest.mark.parametrize("width", [(), (8,)], ids=str)
def test_a_row_of_a_million_entries_keeps_its_precision(width):
    """Equal terms, whose roundings are all of one sign."""
    case = CASES[0]
    long = Pattern([0, 3, 1_000_003], [0, 1, 2, *range(1_000_000)], (2, 1_000_000))
    v, x = np.full(long.nnz, 0.7, np.float32), np.full((1_000_000, *width), 0.3, np.float32)
    check_product(primitives.matmul(long, *moved(v, x)).get(), long, v, x, case)


@pytest.mark.parametrize("case", CASES)
def test_ten_runs_of_an_operation_and_its_gradients_have_the_same_bits(case, pattern):
    import cupy as cp

    square = pattern_of([3, 2000, 0, 1100, *short_rows(2000)], n_columns=2004)
    other = functions.structure_of(square, square)
    v, w = numbers(pattern.nnz, case), numbers(square.nnz, case, 8)
    for width in ((), (6,)):
        x, g = numbers((pattern.n_columns, *width), case, 5), numbers((pattern.n_rows, *width), case, 6)
        on_v, on_x, on_g = moved(v, x, g)
        runs = {
            b"".join(
                each.tobytes()
                for each in (
                    MatMul(pattern, case.precision).forward(on_v, on_x),
                    *vjp(MatMul(pattern, case.precision), (on_v, on_x), on_g),
                    *vjp(TransposedMatMul(pattern, case.precision), (on_v, on_g), on_x),
                    *vjp(Sampled(pattern, case.precision), (on_g, on_x), on_v),
                )
            )
            for _ in range(10)
        }
        assert len(runs) == 1
    on_w = cp.asarray(w)
    product = Contract(other, precision=case.precision)
    runs = {b"".join(each.tobytes() for each in vjp(product, (on_w, on_w), product.forward(on_w, on_w))) for _ in range(10)}
    assert len(runs) == 1


@pytest.mark.parametrize("case", CASES)
def test_a_product_of_sparse_matrices_and_its_gradients(case):
    import cupy as cp

    p, q = pattern_of(short_rows(900), n_columns=700), pattern_of(short_rows(700, seed=9), n_columns=800, seed=10)
    a, b = numbers(p.nnz, case), numbers(q.nnz, case, 5)
    pattern, found = functions.spgemm(p, cp.asarray(a), q, cp.asarray(b), precision=case.precision)
    structure = functions.structure_of(p, q)
    check_bilinear(found.get(), structure.ends, structure.of_a, structure.of_b, a, b, case)
    c = numbers(pattern.nnz, case, 6)
    of_a, of_b = vjp(Contract(structure, precision=case.precision), moved(a, b), cp.asarray(c))
    for got, face, first, second in ((of_a, structure.by_a, c, b), (of_b, structure.by_b, c, a)):
        check_bilinear(got.get(), face.ends.host, face.first.host, face.second.host, first, second, case)


def test_work_is_on_the_current_stream(pattern):
    """A product behind slow work of its own stream sees what that has written; nothing else waits for the device."""
    import cupy as cp

    case, stream = CASES[0], cp.cuda.Stream(non_blocking=True)
    v, x = moved(numbers(pattern.nnz, case), numbers(pattern.n_columns, case, 5))
    wanted = primitives.matmul(pattern, v, x)
    cp.cuda.Device().synchronize()
    slow = cp.RawKernel(
        """extern "C" __global__ void slow(const float* from, float* to, int n) {
        const long long start = clock64();
        while (clock64() - start < 200000000) {}
        for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = from[i];
    }""",
        "slow",
    )
    late = cp.zeros_like(x)
    cp.cuda.Device().synchronize()
    with stream:
        slow((1,), (256,), (x, late, np.int32(x.size)))
        found = primitives.matmul(pattern, v, late)
        assert not stream.done  # nothing has waited
        stream.synchronize()
        assert found.tobytes() == wanted.tobytes()


def test_arrays_that_begin_anywhere_or_are_not_row_major_have_the_same_bits(pattern):
    import cupy as cp

    case = CASES[0]
    v, x = moved(numbers(pattern.nnz, case), numbers((pattern.n_columns, 8), case, 5))
    wanted = primitives.matmul(pattern, v, x).tobytes()
    shifted = cp.empty(x.size + 1, np.float32)
    shifted[1:] = x.ravel()
    assert primitives.matmul(pattern, v, shifted[1:].reshape(x.shape)).tobytes() == wanted
    assert primitives.matmul(pattern, v, cp.asfortranarray(x)).tobytes() == wanted


def test_arrays_of_two_memories_are_refused(pattern):
    import cupy as cp

    case = CASES[0]
    v, x = numbers(pattern.nnz, case), numbers(pattern.n_columns, case)
    with pytest.raises(ValueError, match="v lies in memory of cuda:0, but x in host memory"):
        primitives.matmul(pattern, cp.asarray(v), x)


def test_groups_are_made_once_for_a_pattern():
    from tests.inside.kernels import values

    case, small = CASES[0], pattern_of(short_rows(50))
    v, x = moved(numbers(small.nnz, case), numbers(small.n_columns, case))
    primitives.matmul(small, v, x)
    ends = small.place("indptr", v)
    kept = values._GROUPS[id(ends)][1]
    primitives.row_sums(small, v)
    assert values._GROUPS[id(ends)][1] is kept
    key = id(ends)
    del small, ends
    assert key not in values._GROUPS


# torch's tensors


@pytest.mark.package("torch")
def test_tensors_are_neither_copied_nor_waited_for(pattern):
    import cupy as cp
    import torch

    from ooc_chol.diff.torch import CSR
    from tests.inside.diff import applied

    device = torch.device("cuda", 0)
    v = torch.randn(pattern.nnz, device=device)
    x = torch.randn(pattern.n_columns, 4, device=device)
    seen = []

    def forward(*arrays):
        seen.extend(array.data.ptr for array in arrays)
        seen.append(cp.cuda.get_current_stream().ptr)
        found = primitives.matmul(pattern, *arrays)
        seen.append(found.data.ptr)
        return found

    stream = torch.cuda.Stream(device)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        result = applied(forward, v, x)
        product = CSR(v, pattern) @ x
    stream.synchronize()
    assert seen == [v.data_ptr(), x.data_ptr(), stream.cuda_stream, result.data_ptr()]
    assert torch.equal(result, product)
    host = primitives.matmul(pattern, v.cpu().numpy(), x.cpu().numpy())
    np.testing.assert_allclose(result.cpu().numpy(), host, rtol=0, atol=1e-3)


@pytest.mark.package("torch")
def test_gradients_of_tensors_on_a_gpu():
    """First and second derivatives by finite differences, and equal bits of ten backward passes."""
    import torch

    from ooc_chol.diff.torch import CSR

    small, square = pattern_of([2, 0, 3, 1, 4], n_columns=6), pattern_of([2, 3, 0, 1, 2, 2], n_columns=6, seed=3)
    device = torch.device("cuda", 0)
    options = {"device": device, "dtype": torch.float64, "requires_grad": True}
    v, w = torch.randn(small.nnz, **options), torch.randn(square.nnz, **options)
    x, panel = torch.randn(6, **options), torch.randn(6, 3, **options)
    for operation, given in (
        (lambda v, x: CSR(v, small) @ x, (v, x)),
        (lambda v, x: CSR(v, small) @ x, (v, panel)),
        (lambda v, w: (CSR(v, small) @ CSR(w, square)).values, (v, w)),
        (lambda w: (CSR(w, square) + CSR(w, square).T).values, (w,)),
        (lambda w: (CSR(w, square).tril() @ x, CSR(w, square).diagonal()), (w,)),
    ):
        assert torch.autograd.gradcheck(operation, given, atol=1e-6)
        assert torch.autograd.gradgradcheck(operation, given, atol=1e-6)

    def gradients():
        out = CSR(v, small) @ (CSR(w, square) @ panel)
        return b"".join(each.cpu().numpy().tobytes() for each in torch.autograd.grad((out**3).sum(), (v, w, panel)))

    assert len({gradients() for _ in range(10)}) == 1
