"""The garbage collector is off while a stream calls a function on the host, and on again afterwards."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import ooc_chol as oc

pytestmark = pytest.mark.cuda


def test_nothing_is_collected_in_a_host_function():
    a, states = np.eye(200) + 0.001, []

    class Source:
        shape, dtype = a.shape, a.dtype

        def __getitem__(self, key):
            states.append(gc.isenabled())
            return a[key]

    factor = oc.cholesky(Source(), tile_size=32, devices="cuda:0")
    dense = np.asarray(factor)
    assert np.allclose(dense @ dense.T, a)
    assert states and not any(states)
    assert gc.isenabled()
