"""A checkpoint of which memory keeps tiles: what waited when the run ended early is in the file, and the bits are the same."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.matrices import FAMILIES
from tests.running_threads import running_threads

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 240, 32
A = FAMILIES["exponential"](N)
ENGINES = {
    "native": {"memory_budget": "80 kB", "fp64": "native"},
    "residue": {"memory_budget": "420 kB", "fp64": "residue"},
    "mixed": {"memory_budget": "100 kB", "precision_threshold": 1e-4},
}


class EndedError(Exception):
    """What ends a run early."""


def ends_at(share):
    def progress(done, total, seconds):
        if done >= share * total:
            raise EndedError

    return progress


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_ended_early_is_gone_on_with_to_the_same_bits(tmp_path, engine, share):
    options = {"tile_size": NB, "devices": "host:0", **ENGINES[engine]}
    expected = np.asarray(oc.cholesky(A, **options))
    call = options | {"checkpoint": tmp_path / "L.ooc", "host_budget": "10 MB"}
    threads = running_threads()
    with pytest.raises(EndedError) as caught:
        oc.cholesky(A, progress=ends_at(share), **call)
    assert any("are in the checkpoint" in note for note in caught.value.__notes__)
    assert [path.name for path in tmp_path.iterdir()] == ["L.ooc.partial"] and running_threads() == threads
    with oc.cholesky(A, **call) as factor:
        assert np.array_equal(np.asarray(factor), expected)
        assert factor.report.resumed > 0 or share < 0.5
        assert factor.report.file_bytes.executed == factor.report.file_bytes.planned
