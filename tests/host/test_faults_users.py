"""The user's own code that raises, or gives what is no tile: his error, at whatever call, and nothing left."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

import ooc_chol as oc

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 80, 32
A = np.exp(-np.abs(np.subtract.outer(np.arange(N), np.arange(N))) / 10.0) + 0.1 * np.eye(N)
MODES: dict[str, dict[str, Any]] = {
    "native": {"memory_budget": "30 kB"},
    "two devices": {"devices": 2},
    "residue": {"fp64": "residue"},
    "mixed": {"precision_threshold": 1e-4},
    "float32": {"dtype": "float32"},
    "whole": {"tile_size": None},
}


class OwnError(Exception):
    """An error that this package does not know."""


class Slices:
    """A matrix by slicing, as h5py has it, or by a function; at call ``at`` it does something else."""

    shape, dtype = (N, N), np.dtype(np.float64)

    def __init__(self, at: int, instead: Any = None) -> None:
        self.calls, self.at, self.instead, self.error = 0, at, instead, OwnError("mine")
        self._lock = threading.Lock()

    def _is_now(self) -> bool:
        with self._lock:
            self.calls += 1
            return self.calls == self.at

    def __getitem__(self, index: Any) -> Any:
        if not self._is_now():
            return A[index]
        if self.instead is None:
            raise self.error
        return self.instead(A[index])

    def tile(self, rows: range, cols: range, out: Any, stream: Any) -> Any:
        """A tile function of the matrix."""
        out[...] = A[rows.start : rows.stop, cols.start : cols.stop]
        if self._is_now():
            if self.instead is None:
                raise self.error
            return self.instead(out)
        return None


def factored(matrix: Any, path: Any, mode: str) -> bytes:
    options = {"tile_size": NB, "devices": "host:0", **MODES[mode]}
    if options["tile_size"] is not None:
        options["store"] = path
    with oc.cholesky(matrix, lower=True, **options) as factor:
        return np.asarray(factor).tobytes()


@pytest.mark.parametrize("kind", ["slices", "function"])
@pytest.mark.parametrize("mode", MODES)
def test_what_the_users_code_raises_is_what_he_meets_at_every_call(mode, kind, tmp_path):
    def made(source: Slices) -> Any:
        return source if kind == "slices" else oc.from_function(N, source.tile)

    counted, path = Slices(0), tmp_path / "L"
    right = factored(made(counted), path, mode)
    kept, descriptors = (path.read_bytes() if path.exists() else b""), len(os.listdir("/proc/self/fd"))
    for at in range(1, counted.calls + 1):
        source = Slices(at)
        try:
            factored(made(source), path, mode)
        except OwnError as error:
            assert error is source.error
        else:
            assert source.calls < at, "it was met by nobody"
        assert (path.read_bytes() if path.exists() else b"") == kept and len(os.listdir(tmp_path)) <= 1
        assert len(os.listdir("/proc/self/fd")) == descriptors
    assert factored(made(Slices(0)), path, mode) == right


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("instead", [lambda part: part[:-1], lambda part: part.astype(str), lambda part: None, lambda part: "no"])
def test_slices_that_are_none_are_refused(mode, instead, tmp_path):
    counted = Slices(0)
    factored(counted, tmp_path / "L", mode)
    os.remove(tmp_path / "L") if (tmp_path / "L").exists() else None
    for at in {1, counted.calls // 2, counted.calls}:
        source = Slices(at, instead)
        with pytest.raises((oc.OocCholError, TypeError, ValueError)):
            factored(source, tmp_path / "L", mode)
        assert os.listdir(tmp_path) == []
