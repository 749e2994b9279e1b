"""torch.compile leaves the operations alone: compiled at their first call they give the same results and gradients."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from scipy.sparse import diags_array

import ooc_chol as oc
from tests.host.torch_matrices import tensor

pytestmark = [
    pytest.mark.host,
    pytest.mark.package("torch"),
    pytest.mark.filterwarnings("ignore:Sparse"),
    #: Warnings of the compiler about what it looked at, which it hides otherwise.
    pytest.mark.filterwarnings("ignore:.*grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def no_monitor():
    """torch walks over graphs under a bar of tqdm that shows nothing, and leaves tqdm's thread running."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tqdm.tqdm.monitor_interval", 0)
        yield


def path(n=6):
    """A tridiagonal matrix of SciPy's."""
    return diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr()


PATH = path()


def factorized(sparse, a, b):
    factor = sparse.factorize(a)
    return factor.solve(b) + factor.solve(b, trans=True)


def entries(sparse, a, b):
    return sparse.solve(sparse.CSR.from_entries([0, 2, 4], [1, 0, 0, 1], a.values[1:5], (2, 2)), b[:2])


def both_derivatives(sparse, a, b):
    import torch

    (g,) = torch.autograd.grad((sparse.solve(a, b) ** 2).sum(), a.values, create_graph=True)
    return g**2


def backward_inside(sparse, a, b):
    (sparse.solve(a, b) ** 2).sum().backward()
    return a.values.grad.clone()


def func_vmap(sparse, a, b):
    import torch

    return torch.func.vmap(lambda b: sparse.solve(a, b))(torch.stack([b, 2 * b]))


OPERATIONS = {
    "solve": lambda sparse, a, b: sparse.solve(a, b),
    "solve with a panel": lambda sparse, a, b: sparse.solve(a, b[:, None] * b, trans=True, assume="spd"),
    "factorize": factorized,
    "triangular solve": lambda sparse, a, b: sparse.triangular_solve(a.tril(), b),
    "triangular solve above": lambda sparse, a, b: sparse.triangular_solve(a.triu(), b, lower=False),
    "eigsh": lambda sparse, a, b: sparse.eigsh(a, 2, which="LA", devices="host:0"),
    "log-determinant": lambda sparse, a, b: sparse.logdet(a),
    "selected inverse": lambda sparse, a, b: sparse.selected_inverse(a).values,
    "Cholesky": lambda sparse, a, b: sparse.cholesky(a)[0].values,
    "sample": lambda sparse, a, b: sparse.sample(a, b),
    "product": lambda sparse, a, b: (a @ (2 * b)) ** 2,
    "product from the left": lambda sparse, a, b: b @ a,
    "matmul": lambda sparse, a, b: sparse.matmul(a, b),
    "transposed": lambda sparse, a, b: a.T @ b,
    "product of matrices": lambda sparse, a, b: (a @ a).values,
    "spgemm": lambda sparse, a, b: sparse.spgemm(a, a.T) @ b,
    "sum": lambda sparse, a, b: (a + 2 * a.T - a / 3 + -a).values,
    "add": lambda sparse, a, b: sparse.add(a, sparse.transpose(a), alpha=b[0]).values,
    "scale": lambda sparse, a, b: sparse.scale(a, rows=b, columns=2 * b).values,
    "row sums and diagonal": lambda sparse, a, b: a.row_sums() * a.diagonal() + sparse.row_sums(a),
    "sampled": lambda sparse, a, b: sparse.sampled(a.pattern, a @ b, b).values,
    "to dense": lambda sparse, a, b: a.to_dense() * b,
    "to sparse": lambda sparse, a, b: a.to_sparse().values() * 2,
    "of a dense tensor": lambda sparse, a, b: sparse.solve(sparse.CSR.of(a.to_dense()), b),
    "of a sparse tensor": lambda sparse, a, b: sparse.solve(sparse.CSR.of(a.to_sparse()), b),
    "of a matrix of SciPy": lambda sparse, a, b: sparse.CSR.of(PATH) @ (b * a.values.sum()),
    "from entries": entries,
    "a copy": lambda sparse, a, b: sparse.solve(a.clone().to(b.dtype), b),
    "both derivatives": both_derivatives,
    "backward inside": backward_inside,
    "vmap": func_vmap,
}
#: torch does not differentiate its own compiled parts twice.
ONCE = {"both derivatives"}


def result_and_gradients(torch, function, sparse):
    """What a function gives, and its gradients, of a matrix whose pattern nobody has seen."""
    oc.diff.forget_factors()
    a = sparse.CSR.of(path()).requires_grad_()
    b = tensor(6, 1, positive=True)
    found = function(sparse, a, b)
    if found.requires_grad:
        (found**2).sum().backward()
    return [found, *(each.new_empty(0) if each.grad is None else each.grad for each in (a.values, b))]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_compiled_at_the_first_call_gives_the_same(sparse, torch, name, backend):
    function = OPERATIONS[name]
    torch.compiler.reset()
    compiled = torch.compile(function, backend="eager" if name in ONCE else backend)
    first = result_and_gradients(torch, compiled, sparse)
    again = result_and_gradients(torch, compiled, sparse)
    wanted = result_and_gradients(torch, function, sparse)
    for found in (first, again):
        for one, other in zip(found, wanted, strict=True):
            assert torch.equal(one, other)


def test_methods_that_compute_are_out_of_the_compilers_sight(sparse):
    """What is added to a class is left alone, too: the table above need not know of it."""
    for of in (sparse.CSR, sparse.Factorization):
        for name, member in vars(of).items():
            function = getattr(member, "__func__", member)
            if callable(function) and hasattr(function, "__code__"):
                assert hasattr(function, "__wrapped__"), f"{of.__name__}.{name}"


def test_many_kinds_of_operands_compile(sparse, torch):
    """More than the compiler keeps of one code: then it leaves what follows alone, and nothing is traced in its place."""
    torch.compiler.reset()
    for n in range(1, 12):
        for dtype in (torch.float32, torch.float64):
            a, b = sparse.CSR.of(path(n)).to(dtype), torch.ones((n, 2)[: 1 + n % 2], dtype=dtype)
            compiled = torch.compile(lambda a, b: sparse.solve(a, b) + 1, backend="eager")
            assert torch.equal(compiled(a, b), sparse.solve(a, b) + 1)


@pytest.mark.commit
def test_a_module_that_holds_a_matrix_trains_compiled(sparse, torch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = sparse.CSR.of(path())
            self.weights = torch.nn.Parameter(tensor(self.matrix.nnz).detach())

        def forward(self, x):
            a = sparse.CSR(self.matrix.values * torch.exp(0.1 * self.weights), self.matrix.pattern)
            return (sparse.solve(a, torch.relu(x)).sin() + a @ x).sum()

    x = tensor(6, 1).detach()
    found = []
    torch.compiler.reset()
    for wrap in (lambda model: torch.compile(model, backend="aot_eager"), lambda model: model):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            wrap(model)(x).backward()
            optimizer.step()
        found.append(model.weights.detach().clone())
    assert torch.equal(*found)


FIRST = """
import sys
import scipy.sparse as sp, torch
import ooc_chol.diff.torch as st
assert "torch._dynamo" not in sys.modules, "the compiler takes a second to import, and nobody has asked for it"
A = st.CSR.of(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(20, 20))).requires_grad_()
b = torch.ones(20, dtype=torch.float64)
found = torch.compile(lambda A, b: (st.solve(A, 2 * b) + b).sum(), backend=sys.argv[1])(A, b)
found.backward()
gradient = A.grad.values
A.values.grad = None
wanted = (st.solve(A, 2 * b) + b).sum()
wanted.backward()
assert abs(found.item() - wanted.item()) <= 1e-14 * abs(wanted.item()), (found, wanted)
assert torch.allclose(gradient, A.grad.values, rtol=1e-14, atol=0)
"""


@pytest.mark.usefixtures("compilers")
def test_first_call_of_a_process_compiles(processes: None, tmp_path):
    """By inductor, where there is a compiler for what it writes."""
    backend = "inductor" if shutil.which("g++") else "aot_eager"
    own = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", FIRST, backend], env={**os.environ, **own}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
