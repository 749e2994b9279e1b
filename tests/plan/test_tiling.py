"""The tile grid, the tasks and their flops."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inside.tasks import Task, TaskKind, TileGrid, finish, flops, update

GRIDS = st.builds(TileGrid, st.integers(1, 200), st.integers(1, 60))


@given(GRIDS)
def test_tile_rows_cover_the_matrix_rows_once(grid):
    assert [row for i in range(grid.nt) for row in grid.span(i)] == list(range(grid.n))
    assert [len(grid.span(i)) for i in range(grid.nt)] == [grid.size(i) for i in range(grid.nt)]
    assert all(grid.size(i) == grid.nb for i in range(grid.nt - 1))
    assert 1 <= grid.size(grid.nt - 1) <= grid.nb


@given(GRIDS)
def test_packed_order_is_row_by_row_and_numbers_every_tile_once(grid):
    tiles = list(grid.tiles())
    assert tiles == sorted((i, j) for i in range(grid.nt) for j in range(i + 1))
    assert [grid.packed(i, j) for i, j in tiles] == list(range(grid.n_tiles))


@given(GRIDS)
def test_tiles_and_their_mirrors_make_the_whole_matrix(grid):
    off_diagonal = sum(grid.entries(i, j) for i, j in grid.tiles() if i > j)
    assert 2 * off_diagonal + sum(grid.entries(i, i) for i in range(grid.nt)) == grid.n**2
    assert all(grid.entries(i, j) == grid.shape(i, j)[0] * grid.shape(i, j)[1] for i, j in grid.tiles())


@pytest.mark.parametrize(("n", "nb", "name"), [(-1, 4, "n"), (-3, 4, "n"), (4, 0, "tile_size"), (4, -1, "tile_size")])
def test_an_order_that_is_none_is_refused(n, nb, name):
    with pytest.raises(ValueError, match=rf"^{name} is {n if name == 'n' else nb}, but"):
        TileGrid(n, nb)


def test_tasks_name_the_tiles_of_their_formula():
    assert (update(3, 1, 0).kind, update(3, 1, 0).output, update(3, 1, 0).reads) == (TaskKind.GEMM, (3, 1), ((3, 0), (1, 0)))
    assert (update(3, 3, 0).kind, update(3, 3, 0).output, update(3, 3, 0).reads) == (TaskKind.SYRK, (3, 3), ((3, 0),))
    assert (finish(3, 1).kind, finish(3, 1).output, finish(3, 1).reads) == (TaskKind.TRSM, (3, 1), ((1, 1),))
    assert (finish(3, 3).kind, finish(3, 3).output, finish(3, 3).reads) == (TaskKind.POTRF, (3, 3), ())
    assert (str(update(3, 1, 0)), str(finish(3, 3))) == ("GEMM (3, 1) k=0", "POTRF (3, 3)")


def all_tasks(nt: int) -> list[Task]:
    """Every task of a factorization, in no order that matters."""
    tiles = [(i, j) for i in range(nt) for j in range(i + 1)]
    return [update(i, j, k) for i, j in tiles for k in range(j)] + [finish(i, j) for i, j in tiles]


@given(st.builds(TileGrid, st.integers(1, 40), st.integers(1, 12)))
def test_flops_add_up_to_a_third_of_the_cube_for_any_tiles(grid):
    rounded_down = sum((Fraction(grid.size(k) ** 3, 3) - grid.size(k) ** 3 // 3 for k in range(grid.nt)), Fraction(0))
    assert sum(flops(task, grid) for task in all_tasks(grid.nt)) + rounded_down == Fraction(grid.n**3, 3)


def test_flops_of_a_short_row_count_its_own_rows():
    grid = TileGrid(10, 4)  # the last tile row has 2 rows
    assert flops(update(2, 1, 0), grid) == 2 * 2 * 4 * 4
    assert flops(update(2, 2, 0), grid) == 2 * 2 * 4
    assert flops(finish(2, 1), grid) == 2 * 4 * 4
    assert flops(finish(2, 2), grid) == 2**3 // 3
