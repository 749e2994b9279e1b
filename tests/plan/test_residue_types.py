"""Plans through residues for float32 and complex matrices: bytes of their type, residues of an entry, and what "auto" takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ooc_chol as oc
from tests.builders import forget_plans
from tests.inside.dense import (
    Problem,
    Rates,
    ResidueLayout,
    ResidueRates,
    default_moduli,
    executed_flops,
    least_layout,
    make_plan,
    residue_layouts,
)
from tests.inside.precision import COMPLEX64, COMPLEX128, FP32, FP64
from tests.inside.tasks import Link, Pool, TileGrid

TYPES = [FP32, COMPLEX64, COMPLEX128]
each_type = pytest.mark.parametrize("fmt", TYPES, ids=lambda fmt: fmt.name)

#: Rates of a GPU like an H200, of kernels in flops of real numbers and of residues at 13 moduli in float64.
RESIDUES = ResidueRates(13, 1.0e14, 4.2e10, 2e11, 6e10, 3e11)
RATES = Rates(2048, 4e12, 3e13, 4.8e13, 4.8e13, 5e10, 5e10, 5e10, 5e10, 1e-5, RESIDUES)


#: Order of the plans.
N = 40960


def plan_of(fmt, n=N, rates=RATES, **options) -> oc.Plan:
    """The plan for a tile function on a GPU with given rates."""
    forget_plans()
    asked = oc.FactorOptions(devices="cuda:0", **{"memory_budget": "64 GiB", **options})
    return make_plan(Problem(n, 0, "function", fmt=fmt), asked, lambda grid: None if rates is None else rates)


@each_type
def test_a_layout_is_made_of_the_bytes_of_its_type(fmt):
    layout = ResidueLayout(7, 64, 4, 2, 9, 4, 11, 3, fmt=fmt)
    planes = 14 if fmt.is_complex else 7
    assert (layout.planes, layout.entry_bytes, layout.tile_bytes) == (planes, planes, fmt.itemsize * 64 * 64)
    assert (
        layout.slot_bytes(Pool.STRIP) == planes * 64 * 64 * 4 and layout.slot_bytes(Pool.ACCUMULATOR) == 4 * planes * 64 * 64 * 2
    )
    assert layout.arena_bytes == 13 * layout.tile_bytes + 11 * layout.strip_bytes + 3 * layout.accumulator_bytes
    assert layout.capacity_bytes(0) == fmt.itemsize * layout.entries
    assert layout.key_text([]) == f"residue, 7 {'split ' if fmt.is_complex else ''}moduli"


def test_slots_of_odd_tiles_do_not_overlap():
    assert [ResidueLayout(7, nb, 1, 1, 1, 1, 1, 2, fmt=FP32).tile_bytes for nb in (1, 3, 5, 16)] == [8, 40, 104, 1024]


@each_type
@pytest.mark.parametrize("share", [1.0, 1.7, 6.0])
def test_every_layout_fits_its_bytes(fmt, share):
    grid = TileGrid(3000, 256)
    least = least_layout(grid, 7, fmt)
    nbytes = int(share * least.arena_bytes)
    layouts = list(residue_layouts(grid, nbytes, 7, fmt=fmt))
    assert layouts and all(layout.arena_bytes <= nbytes and layout.fmt is fmt for layout in layouts)


@each_type
def test_bytes_on_links_are_those_of_the_type(fmt):
    plan = plan_of(fmt, rates=None, fp64="residue", memory_budget="20 GiB")
    entries = sum(plan.grid.entries(*index) for index in plan.grid.tiles())
    assert plan.link_bytes(Link.WRITE) == fmt.itemsize * entries == plan.compulsory_bytes
    assert plan.link_bytes(Link.FETCH) % fmt.itemsize == 0 and plan.moduli == default_moduli(N, fmt)


@each_type
def test_auto_takes_residues_where_fewer_seconds_are_predicted(fmt):
    native, residue, auto = (plan_of(fmt, fp64=engine) for engine in ("native", "residue", "auto"))
    assert native.engine == "native" and residue.engine == auto.engine == "residue"
    assert auto.seconds == residue.seconds < native.seconds
    # Products alone would take as many times the seconds of float64's as there are residues of an entry.
    products = N**3 / 3 / RESIDUES.product * residue.layout.planes / RESIDUES.moduli
    assert products < residue.seconds < 2 * products


@each_type
def test_auto_stays_native_where_residues_are_slower_unknown_or_coarse(fmt):
    slow = replace(RATES, residue=replace(RESIDUES, product=RESIDUES.product / 8))
    assert plan_of(fmt, rates=slow).engine == "native"
    assert plan_of(fmt, rates=replace(RATES, residue=None)).engine == "native"
    assert plan_of(fmt, rates=None).engine == "native"
    assert plan_of(fmt, moduli=default_moduli(N, fmt) - 1).engine == "native"
    assert plan_of(fmt, moduli=default_moduli(N, fmt)).engine == "residue"


@each_type
def test_flops_are_those_of_real_numbers(fmt):
    plan, of_double = plan_of(fmt, rates=None, fp64="residue", moduli=7), plan_of(FP64, rates=None, fp64="residue", moduli=7)
    if plan.grid == of_double.grid and plan.panels == of_double.panels:
        assert plan.flops_executed == fmt.flops_factor * of_double.flops_executed
    assert plan.flops_executed == sum(map(executed_flops, plan.programs)) >= plan.flops
    assert plan.flops == pytest.approx(fmt.flops_factor * N**3 / 3)
