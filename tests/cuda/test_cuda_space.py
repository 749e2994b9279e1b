"""Bases on GPUs: right, in core and streamed, from memory and from a file, on one and on two."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import block_csr
from tests import space_checks as check

pytestmark = pytest.mark.cuda

FFF, FDF, DDD = oc.Precision
KINDS = [(precision, block) for precision in oc.Precision for block in (1, 2, 4, 8)]
every_kind = pytest.mark.parametrize(("precision", "block"), KINDS)
TWO = ["cuda:0", "cuda:1"]


@pytest.fixture(scope="module")
def a():
    return check.symmetric_chunks()


@pytest.fixture(scope="module")
def packed(a):
    with block_csr(a, block_bytes="1 MiB") as found:
        yield found


def least_budget(a, block, precision, devices):
    with pytest.raises(oc.BudgetError) as told:
        check.opened(a, block, precision, devices, memory_budget=1)
    return told.value.needed_bytes


@every_kind
def test_what_a_space_promises(a, packed, precision, block):
    with check.opened(packed, block, precision, "cuda:0") as space:
        check.recurrence(a, space, 4)
        check.panels_come_and_go(space)
        check.sums_are_numpys(space)
        check.dependent_columns(space)
        check.columns_in_the_span(space)
        check.spaces_that_end(space)
        check.nearly_dependent_columns(space)
        check.residuals(a, space)


@pytest.mark.parametrize(("precision", "block"), [(FDF, 2), (DDD, 1), (FFF, 8)])
def test_operators_with_diagonals(a, packed, precision, block):
    left, right, shift = np.random.default_rng(1).uniform(0.5, 1.0, (3, packed.shape[0]))
    whole = (left[:, None] * a.multiply(right[None, :])).tocsr()
    whole.setdiag(whole.diagonal() + shift)
    with check.opened(oc.Operator(packed, left=left, right=right, shift=shift), block, precision, "cuda:0") as space:
        check.residuals(whole, space)


@pytest.mark.parametrize(("precision", "block"), [(DDD, 4), (FDF, 8), (FFF, 2), (FDF, 1)])
def test_bits_and_bytes_from_three_blocks_to_all(packed, precision, block, tmp_path):
    with check.opened(packed, block, precision, "cuda:0") as space:
        wanted = check.everything(space)
    least = least_budget(packed, block, precision, "cuda:0")
    for budget in (least, least + (4 << 20), 4 << 30):
        with check.opened(packed, block, precision, "cuda:0", memory_budget=budget) as space:
            check.bits_and_bytes(space, wanted)
    stored = block_csr(packed, store=tmp_path / "a.oocsr", block_bytes="1 MiB")
    with stored, check.opened(stored, block, precision, "cuda:0", memory_budget=least) as space:
        check.bits_and_bytes(space, wanted)


@pytest.mark.parametrize("devices", ["cuda:0", pytest.param(TWO, marks=pytest.mark.cuda(n=2))])
def test_blocks_of_a_file_stay_in_host_memory_and_bits_too(packed, devices, tmp_path):
    """As far as ``host_budget`` has room: those that do are page-locked, and are not read again."""
    how = {"k": 2, "tol": 1e-4, "block": 4, "ncv": 24, "method": "lanczos", "check": False, "devices": devices}
    with block_csr(packed, store=tmp_path / "a.oocsr", block_bytes="1 MiB") as stored:
        least = least_budget(stored, 4, DDD, devices)
        needed = oc.plan_eigsh(stored, **how).host_bytes
        found = [
            oc.eigsh(stored, **how, memory_budget=2 * least, host_budget=budget) for budget in (needed, needed + (4 << 20), None)
        ]
    for pairs in found:
        assert pairs.eigenvectors.tobytes() == found[0].eigenvectors.tobytes()
        assert pairs.report.bytes.executed == pairs.report.bytes.planned


@pytest.mark.multigpu
@pytest.mark.parametrize(("precision", "block"), [(DDD, 4), (FDF, 8), (FFF, 2), (FDF, 1)])
def test_two_gpus_give_the_bits_of_one(packed, precision, block):
    with check.opened(packed, block, precision, "cuda:0") as space:
        wanted = check.everything(space)
    with check.opened(packed, block, precision, "cuda:0") as space:
        multiplied = check.multiplied_next(space)
    for budget in (least_budget(packed, block, precision, TWO), 4 << 30):
        with check.opened(packed, block, precision, TWO, memory_budget=budget) as space:
            check.bits_and_bytes(space, wanted)
        for reads in (False, True):
            with check.opened(packed, block, precision, TWO, memory_budget=budget) as space:
                assert check.multiplied_next(space, reads=reads) == multiplied


@pytest.mark.multigpu
def test_two_gpus_that_do_not_reach_each_other_give_them_too(packed, monkeypatch):
    from tests.inside.hardware import CudaDevice

    with check.opened(packed, 8, FDF, "cuda:0") as space:
        wanted = check.everything(space)
    monkeypatch.setattr(CudaDevice, "reaches", lambda self, other: self is other)
    with check.opened(packed, 8, FDF, TWO) as space:
        check.bits_and_bytes(space, wanted)
        assert space.sum_bytes > 0
