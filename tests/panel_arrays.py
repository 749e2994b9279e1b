"""Arrays for kernels on panels, and calls of these on the host or on the current GPU that return NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np

from ooc_chol import Precision
from tests.inside.kernels import AbstractPanelKernels, panel_kernels


class Host:
    """Kernels on NumPy's arrays; a stream that runs what it is given at once."""

    name = "host:0"

    def __init__(self, threads=1):
        self.threads = threads

    def stream(self):
        return SimpleNamespace(enqueue=lambda operation: operation())

    def bring(self, a):
        return np.array(a)

    def take(self, a):
        return np.array(a)


class Gpu:
    """Kernels on the current GPU, enqueued on a stream of its own."""

    name = "cuda:0"
    threads = 1

    def __init__(self):
        import cupy as cp

        self._cupy, self._stream = cp, cp.cuda.Stream(non_blocking=True)

    def stream(self):
        return SimpleNamespace(stream=self._stream, record=self._stream.record)

    def bring(self, a):
        found = self._cupy.asarray(a)
        self._cupy.cuda.Device().synchronize()  # the kernels' stream does not wait for that of the copy
        return found

    def take(self, a):
        self._stream.synchronize()
        return a.get()


Machine = Host | Gpu


def call(machine: Machine, precision: Precision, block: int, use: Callable[[AbstractPanelKernels, Any], Any]) -> Any:
    """``use(kernels, stream)``."""
    with closing(panel_kernels(machine.name, precision, block, machine.threads)) as kernels:
        return use(kernels, machine.stream())


def vectors(shape, precision, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(precision.storage)


def as_matrix(basis):
    """The columns of all panels side by side, in extended precision."""
    return basis.transpose(1, 0, 2).reshape(basis.shape[1], -1).astype(np.longdouble)


def flag(machine, value):
    return machine.bring(np.array([value], np.uint32))


def partials(machine, precision, basis, w, unless=None):
    """Inner products of each chunk; NaN where nothing was written."""
    p, rows, b = basis.shape

    def use(kernels, stream):
        out = machine.bring(np.full((-(-rows // kernels.chunk_rows), p * b, b), np.nan, precision.compute))
        kernels.gram(stream, machine.bring(basis), machine.bring(w), out, unless=unless)
        return machine.take(out)

    return call(machine, precision, b, use)


def added(machine, precision, partial, before=None, unless=None):
    """The sum over chunks, which lie in two places, added to what was there before if anything was."""

    def use(kernels, stream):
        shape = partial.shape[1:]
        out = machine.bring(np.full(shape, np.nan, precision.compute) if before is None else before)
        parts = [machine.bring(part) for part in (partial[: len(partial) // 2], partial[len(partial) // 2 :])]
        kernels.add_partials(stream, parts, out, adds=before is not None, unless=unless)
        return machine.take(out)

    return call(machine, precision, partial.shape[2], use)


def subtracted(machine, precision, basis, coefficients, w, unless=None):
    def use(kernels, stream):
        out = machine.bring(w)
        kernels.subtract(stream, machine.bring(basis), machine.bring(coefficients), out, unless=unless)
        return machine.take(out)

    return call(machine, precision, basis.shape[2], use)


def combined(machine, precision, basis, coefficients, *, in_place):
    q = coefficients.shape[1] // basis.shape[2]

    def use(kernels, stream):
        given = machine.bring(basis)
        out = given[:q] if in_place else machine.bring(np.full((q, *basis.shape[1:]), np.nan, precision.storage))
        kernels.combine(stream, given, machine.bring(coefficients), out)
        return machine.take(given if in_place else out)

    return call(machine, precision, basis.shape[2], use)


def factored(machine, precision, g, tolerance, scale=None, before=None, roundoff=0.0, share=0.0):
    """R, its inverse, the flags of dependent columns, and with ``scale`` and ``before`` whether there is any."""
    b = len(g)

    def use(kernels, stream):
        r, inverse = (machine.bring(np.full((b, b), np.nan, precision.compute)) for _ in range(2))
        dependent = machine.bring(np.full(b, 7, np.uint32))
        given = machine.bring(g.astype(precision.compute))
        if scale is None:
            kernels.factor(stream, given, r, inverse, dependent, tolerance=tolerance)
            return machine.take(r), machine.take(inverse), machine.take(dependent)
        more = [machine.bring(each.astype(precision.compute)) for each in (scale, before)]
        weak = flag(machine, 0)
        options = {"scale": more[0], "before": more[1], "roundoff": roundoff, "share": share, "weak": weak}
        kernels.factor(stream, given, r, inverse, dependent, tolerance=tolerance, **options)
        return machine.take(r), machine.take(inverse), machine.take(dependent), int(machine.take(weak)[0])

    return call(machine, precision, b, use)


def fell_within(machine, precision, g, tolerance, before, share, least):
    """Whether a pivot was clamped, or one or an entry of the diagonal is low beside what it was."""
    b = len(g)

    def use(kernels, stream):
        r, inverse = (machine.bring(np.full((b, b), np.nan, precision.compute)) for _ in range(2))
        given, was = (machine.bring(each.astype(precision.compute)) for each in (g, before))
        fell = flag(machine, 7)
        options = {"before": was, "share": share, "least": least, "fell": fell}
        kernels.factor_clamped(stream, given, r, inverse, tolerance=tolerance, **options)
        return int(machine.take(fell)[0])

    return call(machine, precision, b, use)


def clamped(machine, precision, g, tolerance, last=None, unless=None):
    """R, its inverse, and whether a pivot was clamped; NaN and 7 where nothing was written."""
    b = len(g)

    def use(kernels, stream):
        r, inverse = (machine.bring(np.full((b, b), np.nan, precision.compute)) for _ in range(2))
        weak, behind = flag(machine, 7), None if last is None else machine.bring(np.asarray(last, np.uint32))
        given = machine.bring(g.astype(precision.compute))
        kernels.factor_clamped(stream, given, r, inverse, weak, tolerance=tolerance, last=behind, unless=unless)
        return machine.take(r), machine.take(inverse), int(machine.take(weak)[0])

    return call(machine, precision, b, use)


def widened(machine, precision, w, first, count):
    def use(kernels, stream):
        out = machine.bring(np.full((len(w), count), np.nan))
        kernels.widen(stream, machine.bring(w), first, out)
        return machine.take(out)

    return call(machine, precision, w.shape[1], use)


def multiplied(machine, precision, w, inverse, *, in_place=True, unless=None):
    def use(kernels, stream):
        given = machine.bring(w)
        out = given if in_place else machine.bring(np.full_like(w, np.nan))
        kernels.multiply_right(stream, given, machine.bring(inverse.astype(precision.compute)), out, unless=unless)
        return machine.take(out)

    return call(machine, precision, w.shape[1], use)


def multiplied_twice(machine, precision, w, factors, made, flags):
    def use(kernels, stream):
        out = machine.bring(w)
        given = [machine.bring(factor.astype(precision.compute)) for factor in factors]
        flags_there = machine.bring(np.array(flags, np.uint32))
        kernels.multiply_right_twice(stream, out, *given, made=machine.bring(made), flags=flags_there)
        return machine.take(out)

    return call(machine, precision, w.shape[1], use)


def entries_multiplied(machine, precision, w, factors):
    def use(kernels, stream):
        out = machine.bring(w)
        kernels.multiply_entries(stream, machine.bring(factors), out)
        return machine.take(out)

    return call(machine, precision, w.shape[1], use)


def recurred(machine, precision, w, x, previous, scale, shift, into):
    """``scale * (W - shift * X) - previous`` into an array of its own, W, or the previous one."""

    def use(kernels, stream):
        given = {"w": machine.bring(w), "previous": None if previous is None else machine.bring(previous)}
        out = given.get(into)
        out = machine.bring(np.full_like(w, np.nan)) if out is None else out
        kernels.recur(stream, given["w"], machine.bring(x), given["previous"], out, scale=scale, shift=shift)
        return machine.take(out)

    return call(machine, precision, w.shape[1], use)


def filled(machine, precision, w, first_row, seed, columns=None):
    def use(kernels, stream):
        out = machine.bring(w)
        chosen = None if columns is None else machine.bring(np.asarray(columns, np.uint32))
        kernels.fill_random(stream, out, first_row, seed, columns=chosen)
        return machine.take(out)

    return call(machine, precision, w.shape[1], use)


def fallen(machine, precision, before, after, share, flag_before=7):
    def use(kernels, stream):
        out = flag(machine, flag_before)
        arrays = [machine.bring(np.asarray(each, precision.compute)) for each in (before, after)]
        kernels.fell(stream, *arrays, out, share=share)
        return int(machine.take(out)[0])

    return call(machine, precision, len(before), use)
