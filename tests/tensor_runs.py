"""Graphs, problems and a plain space for tests of imputation."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import ooc_chol as oc
from ooc_chol import Precision
from tests.inside.kernels import TensorShape
from tests.inside.tensors import AbstractTensorSpace, StepFigures, TensorSeconds

#: Largest relative error of the inverse of a transform, of float32 and float64: the issue's D2.
INVERSE_RTOL = {"float32": 1e-5, "float64": 1e-13}
#: Largest relative error of imputation, by N, order of slices and rank: the issue's D3.
D3 = {(200, 64, 6): 5e-5, (150, 40, 4): 1e-4}
#: Of steps in DDD, relative to the plain space in float64 with NumPy's SVD.
STEP_RTOL = 1e-9
#: At the end of a run, the route of subspaces beside that of Gram matrices: the issue's D1.
ROUTES_RTOL = 1e-6


def random_graph(n, degree=10, seed=0):
    """A dense adjacency matrix of ones."""
    upper = np.triu(np.random.default_rng(seed).random((n, n)) < degree / n, 1).astype(float)
    return upper + upper.T


def problem(n, order, rank, share, *, by="slice", seed=0, columns=None, dtype=np.float32, fourier=None):
    """A synthetic tensor on a random graph, its transform, and a mask."""
    fourier = fourier or oc.GraphFourier(random_graph(n, seed=seed))
    x = oc.testing.low_rank_tensor(fourier, order, columns or order, rank, seed=seed, dtype=dtype)
    return SimpleNamespace(x=x, mask=oc.testing.random_mask(x.shape, share, by=by, seed=seed), fourier=fourier)


def error_of(imputed, x):
    """Relative error of the whole tensor, as the paper's rMSE."""
    return float(np.linalg.norm(np.asarray(imputed, np.float64) - x) / np.linalg.norm(x.astype(np.float64)))


def shrunk(values, lam, shrinkage):
    """What singular values become: ``s - lam``, or ``s - lam**2 / s`` by the garrote, where they are above ``lam``."""
    safe = np.maximum(values, lam)
    return np.where(values > lam, safe - (lam**2 / safe if shrinkage == "garrote" else lam), 0)


class PlainSpace(AbstractTensorSpace):
    """The model in a few lines of NumPy: float64, SVD, everything at once."""

    def __init__(self, basis, slices, precision=Precision.DDD):
        self.shape, self.precision, self.svt = TensorShape(*basis.shape, *slices), precision, "svd"
        self.devices, self.seconds, self.trace = ("host:0",), TensorSeconds(), None
        self.u = basis.astype(float)

    def load(self, observed, mask, start=None):
        self.mask = np.broadcast_to(mask.reshape(len(mask), *((1, 1) if mask.ndim == 1 else mask.shape[1:])), observed.shape)
        self.y = np.where(self.mask, observed, 0).astype(float)
        self.x = self.y if start is None else np.where(self.mask, self.y, start)

    def forward(self, x):
        return np.einsum("nk,nij->kij", self.u, x)

    def largest(self):
        return float(np.linalg.norm(self.forward(self.y), 2, axis=(1, 2)).max())

    def step(self, lam, momentum=0.0, shrinkage="soft"):
        left, values, right = np.linalg.svd(self.forward(self.x), full_matrices=False)
        z = np.einsum("nk,kij->nij", self.u, (left * shrunk(values, lam, shrinkage)[:, None]) @ right)
        new = np.where(self.mask, self.y, z + momentum * (z - self.x))
        change, size = float(((new - self.x) ** 2).sum()), float((self.x**2).sum())
        self.x = new
        return StepFigures(change, size, (values > lam).sum(axis=1).astype(np.int32), len(values))

    def take(self, rows=None):
        return self.x if rows is None else self.x[rows.start : rows.stop]

    def warm(self):
        return []

    def warm_up(self, arrays):
        assert not len(arrays)

    @property
    def planned_bytes(self):
        return {}

    @property
    def executed_bytes(self):
        return {}

    def close(self):
        pass
