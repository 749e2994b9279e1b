"""Patterns and checks for tests of the torch adapter. Torch is imported by calls alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

import ooc_chol as oc

#: Rows and columns of patterns of all kinds: one with empty rows and columns, one entry, none, tall, wide, and full.
SHAPES = {"holes": (5, 5), "one": (1, 1), "none": (3, 4), "tall": (6, 3), "wide": (3, 6), "full": (3, 3)}


def pattern_of(kind: str, seed: int = 0) -> oc.diff.Pattern:
    """A pattern of one kind."""
    rng = np.random.default_rng(seed)
    n_rows, n_columns = SHAPES[kind]
    is_there = rng.random((n_rows, n_columns)) < 0.5
    if kind in ("one", "full"):
        is_there[:] = True
    if kind == "none":
        is_there[:] = False
    if kind == "holes":
        is_there[[1, 4]] = is_there[:, 2] = False
        is_there[0, 0] = is_there[2, 1] = True
    return oc.diff.Pattern.of(scipy.sparse.csr_array(is_there.astype(float)))[0]


def poisson(side: int) -> scipy.sparse.csr_array:
    """The five-point Laplacian of a square grid."""
    line = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    eye = scipy.sparse.eye_array(side)
    return scipy.sparse.csr_array(scipy.sparse.kron(line, eye) + scipy.sparse.kron(eye, line))


def tensor(shape: int | tuple[int, ...], seed: int = 0, *, positive: bool = False) -> Any:
    """Random float64 numbers that autograd follows."""
    import torch

    rng = np.random.default_rng(seed)
    numbers = rng.uniform(0.5, 1.5, shape) if positive else rng.standard_normal(shape)
    return torch.from_numpy(numbers).requires_grad_()


def assert_differentiates_twice(function: Callable[..., Any], *tensors: Any) -> None:
    """``gradcheck``, backward and forward, and ``gradgradcheck``, to 1e-6."""
    from torch.autograd import gradcheck, gradgradcheck

    assert gradcheck(function, tensors, atol=1e-6, check_forward_ad=True)
    assert gradgradcheck(function, tensors, atol=1e-6)


def bits(*tensors: Any) -> list[bytes]:
    """The bits of tensors."""
    return [each.detach().cpu().numpy().tobytes() for each in tensors]
