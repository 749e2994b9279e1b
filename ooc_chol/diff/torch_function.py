"""Operations on tensors, recorded by torch: one autograd function for all of them, whose derivatives are operations again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor

from ooc_chol.diff.definite import AbstractDefiniteOp
from ooc_chol.diff.eigenvalues import Eigenvalues, Eigenvectors
from ooc_chol.diff.factors import Memo, Solve, TriangularSolve
from ooc_chol.diff.ops import AbstractBilinearOp, AbstractLinearOp, AbstractOp, Gather, MatMul, Times, Transpose, TransposedMatMul
from ooc_chol.diff.torch_arrays import applied, uncompiled, uncompiled_methods

#: Operations whose second argument may have more columns, and whose result then has as many.
_OF_PANELS = (MatMul, TransposedMatMul, Solve, TriangularSolve)


@uncompiled
def apply(op: AbstractOp, *given: Tensor) -> Tensor:
    """Compute an operation of tensors of one type on one device, and record it."""
    if isinstance(op, Times):
        return given[0] * given[1]
    result: Tensor = SparseOperation.apply(op, *given)  # type: ignore[no-untyped-call]
    return result


@final
@uncompiled_methods
class SparseOperation(torch.autograd.Function):
    """Any operation of :mod:`ooc_chol.diff.functions`."""

    @staticmethod
    def forward(op: AbstractOp, *given: Tensor) -> Tensor:
        """The result of the operation."""
        result: Tensor = applied(op.forward, *given)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what derivatives need: the arguments, of what is not linear."""
        ctx.op, *given = inputs
        ctx.count = len(given)
        if not isinstance(ctx.op, AbstractLinearOp):
            ctx.save_for_backward(*given)
            ctx.save_for_forward(*given)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:
        """Cotangents of the arguments, by operations that are recorded in turn."""
        given = (None,) * ctx.count if isinstance(ctx.op, AbstractLinearOp) else ctx.saved_tensors
        return None, *ctx.op.pull(apply, given, cotangents[0], ctx.needs_input_grad[1:])

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Tensor:
        """The tangent of the result, by operations that are recorded in turn."""
        given: Any = [None] * ctx.count if isinstance(ctx.op, AbstractLinearOp) else ctx.saved_tensors
        if isinstance(ctx.op, Solve | TriangularSolve):
            return _solved_change(ctx.op, *given, *tangents)
        if isinstance(ctx.op, Eigenvalues):
            x = apply(Eigenvectors(ctx.op.spectrum), given[0])
            return (x * apply(MatMul(ctx.op.spectrum.pattern), tangents[0], x)).sum(0)  # dw = x.T dA x
        if isinstance(ctx.op, AbstractDefiniteOp):
            pushed = [ctx.op.pushed(apply, given, at, each) for at, each in enumerate(tangents) if each is not None]
            change: Tensor = sum(pushed[1:], start=pushed[0])
            return change
        if not isinstance(ctx.op, AbstractLinearOp | AbstractBilinearOp):
            raise NotImplementedError(
                f"{type(ctx.op).__name__.lower()} are differentiated backward only: take torch.func.jacrev or vjp in place of "
                "jacfwd, jvp or hessian"
            )
        parts = [apply(ctx.op, *given[:i], each, *given[i + 1 :]) for i, each in enumerate(tangents) if each is not None]
        return sum(parts[1:], start=parts[0])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], op: AbstractOp, *given: Tensor) -> tuple[Tensor, int]:
        """One operation for right-hand sides of one matrix; else one after the other."""
        dims = in_dims[1:]
        if isinstance(op, _OF_PANELS) and dims[0] is None:
            assert dims[1] is not None
            x = given[1].movedim(dims[1], -1)
            result = apply(op, given[0], x.flatten(1))
            return result.reshape(len(result), *x.shape[1:]).movedim(-1, 0), 0
        if not info.batch_size:
            return _of_none(op, given, dims), 0
        found = [
            apply(op, *(one if dim is None else one.select(dim, i) for one, dim in zip(given, dims, strict=True)))
            for i in range(info.batch_size)
        ]
        return torch.stack(found), 0


@final
@uncompiled_methods
class DifferentiatedOnce(torch.autograd.Function):
    """Values that go in or out by a sparse tensor of torch, which cuts its first derivatives off from second ones in silence."""

    @staticmethod
    def forward(values: Tensor, instead: str) -> Tensor:
        """The same values."""
        return values.view_as(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what errors advise."""
        ctx.instead = inputs[1]

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Any, ...]:
        """The cotangent, where it is not to be differentiated again."""
        if torch.is_grad_enabled():  # create_graph=True, which torch.func always sets
            raise NotImplementedError(
                "second derivatives through a sparse tensor of torch would be wrong: torch does not record how the gradient of "
                f"its values was made; take {ctx.instead}, or backward() without create_graph where first derivatives are enough"
            )
        return cotangents[0], None


def differentiated_once(values: Tensor, instead: str) -> Tensor:
    """Values whose second derivatives are refused."""
    found: Tensor = DifferentiatedOnce.apply(values, instead) if values.requires_grad else values  # type: ignore[no-untyped-call]
    return found


def _of_none(op: AbstractOp, given: tuple[Tensor, ...], dims: tuple[int | None, ...]) -> Tensor:
    """Results of a batch of nothing, (0, ...), which come of what was given as those of any other."""
    shapes = [one.shape if dim is None else one.movedim(dim, 0).shape[1:] for one, dim in zip(given, dims, strict=True)]
    if isinstance(op, AbstractDefiniteOp):
        shape = op.shape
    elif isinstance(op, Solve | TriangularSolve):
        shape = shapes[1]
    elif isinstance(op, Eigenvalues | Eigenvectors):
        shape = (op.spectrum.pattern.n_rows, op.spectrum.k)[isinstance(op, Eigenvalues) :]
    else:  # products and placing, of zeros
        shape = apply(op, *(one.new_zeros(each) for one, each in zip(given, shapes, strict=True))).shape
    return sum(one.sum() for one in given) * given[0].new_zeros(0, *shape)


def _solved_change(op: Solve | TriangularSolve, v: Tensor, b: Tensor, dv: Tensor | None, db: Tensor | None) -> Tensor:
    """``dx = A^-1 (db - dA x)`` of ``x = A^-1 b``, with the factor that gave x."""
    again = replace(op, memo=Memo(op.memo.factor))
    if dv is None:
        assert db is not None
        return apply(again, v, db)
    pattern = op.pattern
    if isinstance(op, TriangularSolve) and op.unit_diagonal:
        part = pattern.tril(-1) if op.lower else pattern.triu(1)
        pattern, dv = part.pattern, apply(Gather(part.places, pattern.nnz), dv)
    if op.trans:
        pattern, dv = pattern.transposed, apply(Transpose(pattern), dv)
    change = apply(MatMul(pattern, op.precision), dv, apply(op, v, b))
    return apply(again, v, -change if db is None else db - change)
