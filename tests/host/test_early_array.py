"""Memory that is asked for early: nobody writes to it once it is taken, and no thread is left."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ooc_chol as oc
from tests.inside.eigen import DeviceSpace, EarlyArray, early_array

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "no_lapack")]


def pages_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in ("ooc_chol pages", "ooc_chol team")]


@pytest.mark.parametrize("shape", [(0, 3), (5, 3), (3 << 20, 24)])
def test_what_is_written_to_an_array_that_was_taken_stays(shape: tuple[int, int]) -> None:
    early = EarlyArray(shape, np.dtype(np.float32))
    found = early.take()
    assert (found.shape, found.dtype) == (shape, np.float32)
    found[:] = 1
    assert not pages_threads()
    assert np.all(found == 1)


def test_one_that_nobody_takes_leaves_no_thread() -> None:
    early = EarlyArray((1 << 22, 24), np.dtype(np.float64))
    early.close()
    early.close()
    assert not pages_threads()


@pytest.mark.parametrize("k", [1, 5])
def test_eigsh_gives_the_same_vectors_with_it(monkeypatch: pytest.MonkeyPatch, k: int) -> None:
    graph = oc.testing.rmat(14)
    w, v = oc.eigsh(graph, k, precision="FDF", devices="host:0")
    taken, take = [], EarlyArray.take
    monkeypatch.setattr(EarlyArray, "take", lambda self: taken.append(self) or take(self))
    monkeypatch.setattr(early_array, "LEAST_BYTES", 1)
    monkeypatch.setattr(DeviceSpace, "_is_on_host", False)
    values, vectors = oc.eigsh(graph, k, precision="FDF", devices="host:0")
    assert len(taken) == 1
    np.testing.assert_array_equal(values, w)
    np.testing.assert_array_equal(vectors, v)
    with pytest.raises(oc.errors.NoConvergenceError):
        oc.eigsh(graph, k, precision="FDF", devices="host:0", max_passes=2, tol=1e-7)
    assert not pages_threads()
