"""Matrices, and operations of ``ooc_chol.diff.jax`` with their arguments, that tests of the adapter share."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from ooc_chol.diff import Pattern

SEED = 20261123


def random_matrix(n_rows=7, n_columns=5, *, density=0.4, seed=SEED):
    """A sparse matrix with an empty row and an empty column, where it is large enough."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < density)
    if min(n_rows, n_columns) > 3:
        dense[2], dense[:, 1] = 0, 0
    return scipy.sparse.csr_array(dense)


def solvable(n=6, *, seed=SEED):
    """A general matrix that is far from singular, with a diagonal."""
    return scipy.sparse.csr_array(random_matrix(n, n, seed=seed) + 4 * scipy.sparse.eye_array(n))


def poisson(n, dtype=np.float64):
    """The five-point matrix of an n x n grid."""
    path = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    one = scipy.sparse.eye_array(n)
    return scipy.sparse.csr_array(scipy.sparse.kron(path, one) + scipy.sparse.kron(one, path)).astype(dtype)


def lengths(counts, n_columns, *, seed=SEED):
    """A pattern whose rows have these numbers of entries."""
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.choice(n_columns, count, replace=False)) for count in counts]
    return Pattern(np.concatenate([[0], np.cumsum(counts)]), np.concatenate(columns), (len(counts), n_columns))


#: Operations by name: what is computed of the module, of A (7, 5), B (5, 4), S (6, 6) and vectors, and names of its arguments.
OPERATIONS = {
    "matmul with columns": (lambda m, A, X: m.matmul(A, X), "A X"),
    "dense times sparse": (lambda m, A, G: G.T @ A, "A G"),
    "sampled": (lambda m, A, G, X: m.sampled(A.pattern, G, X).values * A.values, "A G X"),
    "spgemm": (lambda m, A, B: m.spgemm(A, B).values, "A B"),
    "add": (lambda m, A, A2: m.add(A, A2, alpha=2.0, beta=-0.5).values, "A A2"),
    "parts": (lambda m, A: (A.tril(-1) + 2 * A.triu(1)).values ** 2 * A.diagonal().sum() ** 2, "A"),
    "scale": (lambda m, A, g, x: m.scale(A, rows=g, columns=x).values, "A g x"),
    "transpose, row sums, to dense": (lambda m, A: A.T.to_dense() * A.row_sums(), "A"),
    "solve": (lambda m, S, b: m.solve(S, b), "S b"),
    "solve with the transpose and columns": (lambda m, S, Bs: m.solve(S, Bs, trans=True), "S Bs"),
    "upper triangle, transposed": (lambda m, S, Bs: m.triangular_solve(S.triu(), Bs, lower=False, trans=True), "S Bs"),
    "unit diagonal": (lambda m, S, b: m.triangular_solve(S.triu(), b, lower=False, unit_diagonal=True), "S b"),
    "product of a product": (lambda m, A, B, y: (A @ B) @ y, "A B y"),
    "solve with a sum": (lambda m, S, S2, b: m.solve(S + S2, b), "S S2 b"),
    "log-determinant": (lambda m, S: m.logdet(S @ S.T), "S"),
    "selected inverse": (lambda m, S: m.selected_inverse(S @ S.T).values, "S"),
    "Cholesky": (lambda m, S: m.cholesky(S @ S.T)[0].values, "S"),
    "sample": (lambda m, S, Bs: m.sample(S @ S.T, Bs), "S Bs"),
    "sample of a vector": (lambda m, S, b: m.sample(S @ S.T, b), "S b"),
    "solve of a solve": (lambda m, S, b: m.solve(S, m.solve(S, b) ** 2), "S b"),
}


def arguments(module, names, dtype=np.float64):
    """Arguments of an operation by their names."""
    rng = np.random.default_rng(SEED)
    shapes = {"x": (5,), "X": (5, 3), "g": (7,), "G": (7, 3), "y": (4,), "b": (6,), "Bs": (6, 2)}
    dense = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    sparse = {
        "A": random_matrix(),
        "A2": random_matrix(seed=3),
        "B": random_matrix(5, 4, seed=2),
        "S": solvable(),
        "S2": solvable(seed=4),
    }
    import jax.numpy as jnp

    return [module.CSR.of(sparse[name].astype(dtype)) if name in sparse else jnp.asarray(dense[name]) for name in names.split()]
