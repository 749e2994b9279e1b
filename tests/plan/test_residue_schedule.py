"""Programs through residues: what ``waits`` promise on one device and several, memory, flops, bytes, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ooc_chol as oc
from ooc_chol.errors import BudgetError, ScheduleError
from tests.builders import forget_plans
from tests.inside.dense import (
    Program,
    ProgramBuilder,
    Step,
    contents,
    least_layout,
    residue_layouts,
    residue_tiles,
    rows,
    simulate,
    tile_key,
)
from tests.inside.dense import residues as residues_planner
from tests.inside.precision import MOST_ROWS, MOST_TERMS
from tests.inside.tasks import (
    INVERSES,
    STEP,
    Convert,
    Diagonal,
    Fold,
    Invert,
    Link,
    Load,
    Place,
    Pool,
    Potrf,
    Product,
    Pull,
    Reconstruct,
    StepKind,
    Store,
    StreamKind,
    Task,
    TaskKind,
    TileGrid,
    Trsm,
    finish,
    flops,
    update,
)
from tests.plan import replay
from tests.plan.problems import changed, on_other_places, with_steps
from tests.plan.replay import RaceError, Replay
from tests.plan.residue_problems import ResidueProblem, make_problem, residue_problems
from tests.products import share_of_examples

#: Where each example is a whole program.
fewer_examples = share_of_examples(0.4)

#: From a stream that hardly ever moves to one that always moves first.
EAGERNESS = st.lists(st.sampled_from([1e-6, 1e-2, 1.0, 1e3]), min_size=30, max_size=30)
SEEDS = st.integers(0, 2**32 - 1)
OWNERS = (0, 1, 1, 0, 0, 1, 1, 0)


def tasks_of(grid: TileGrid) -> list[Task]:
    """Every task of the factorization."""
    return [task for i, j in grid.tiles() for task in (*(update(i, j, k) for k in range(j)), finish(i, j))]


def replayed(programs, grid: TileGrid, eagerness=(1.0,), seed: int = 0) -> Replay:
    """The replay after its run; L must be complete, and the squares of each row summed once."""
    run = Replay(programs, grid)
    run.run(eagerness, seed)
    assert {spot: value for spot, value in run.held.items() if spot[0] == "store"} == {
        ("store", i, j): j + 1 for i, j in grid.tiles()
    }
    assert Counter(run.writes_of_store) == Counter(("store", i, j) for i, j in grid.tiles())
    norms = [(spot[2], value) for spot, value in run.held.items() if spot[0] == "norms"]
    assert sorted(norms) == [(row, row) for row in range(1, grid.nt)]
    return run


# what `waits` and `awaits` promise


@given(problem=residue_problems(), eagerness=EAGERNESS, seed=SEEDS)
@share_of_examples(1.2)
def test_waits_are_enough_for_any_interleaving_of_the_streams(problem, eagerness, seed):
    programs = problem.programs()
    simulate(programs, problem.grid, None)
    replayed(programs, problem.grid, eagerness, seed)


@pytest.mark.parametrize("late", StreamKind)
@given(problem=residue_problems())
@share_of_examples(0.2)
def test_waits_are_enough_when_one_stream_of_one_device_hardly_moves(late, problem):
    programs = problem.programs()
    lanes = [(device, stream) for device, program in enumerate(programs) for stream in program.streams]
    for slow in range(2):
        replayed(programs, problem.grid, [1e-9 if lane == (slow, late) else 1.0 for lane in lanes])


def without(programs, stream: StreamKind, other: StreamKind) -> list[Program]:
    """The programs, whose steps on ``stream`` do not wait on ``other``."""
    weaker = []
    for program in programs:
        steps = program.steps
        weaker.append(
            with_steps(
                program,
                [
                    step._replace(
                        waits=tuple(at for at in step.waits if step.stream is not stream or steps[at].stream is not other)
                    )
                    for step in steps
                ],
            )
        )
    return weaker


@pytest.mark.parametrize(
    ("stream", "other"),
    [
        (StreamKind.COPY_IN, StreamKind.CONVERT),  # a slot in transit is filled again while its tile is converted
        (StreamKind.CONVERT, StreamKind.COPY_IN),  # a tile is converted before it is there
        (StreamKind.CONVERT, StreamKind.COMPUTE),  # a strip is overwritten while a product reads it
        (StreamKind.COMPUTE, StreamKind.CONVERT),  # a product reads a strip before it is filled
        (StreamKind.CONVERT, StreamKind.SOURCE),  # exponents of a diagonal tile that is not there
        (StreamKind.SOURCE, StreamKind.CONVERT),
        (StreamKind.FINISH, StreamKind.COMPUTE),  # a tile is reconstructed before its sums are complete
        (StreamKind.FINISH, StreamKind.SOURCE),  # ... or before it is there
        (StreamKind.FINISH_1, StreamKind.FINISH),  # TRSM before POTRF
        (StreamKind.COMPUTE, StreamKind.FINISH),  # an accumulator is overwritten before it is reconstructed
        (StreamKind.COPY_OUT, StreamKind.FINISH),  # a tile is written before it is final
        (StreamKind.SOURCE, StreamKind.COPY_OUT),  # a slot is filled again before its tile is written
        (StreamKind.COMPUTE, StreamKind.PEER),
        (StreamKind.FINISH, StreamKind.EXCHANGE),  # a row uses a diagonal tile or a column of a strip that is not there
        (StreamKind.EXCHANGE, StreamKind.FINISH),  # the place of a diagonal tile is filled again while TRSM reads it
    ],
)
def test_each_kind_of_wait_is_needed(stream, other):
    for owners in ((0,) * 8, OWNERS):
        problem = make_problem(8, owners=owners, chunk=2, width=2)
        programs = problem.programs()
        weaker = without(programs, stream, other)
        lanes = [lane for program in programs for lane in program.streams]
        eagerness = [1e-9 if lane is other else 1.0 for lane in lanes]
        replayed(programs, problem.grid, eagerness)
        if weaker != list(programs):
            with pytest.raises(RaceError):
                replayed(weaker, problem.grid, eagerness)
            return
    pytest.fail("no program has such a wait")


@pytest.mark.parametrize("kind", [Load, Pull, Store, Convert])
def test_each_kind_of_await_is_needed(kind):
    problem = make_problem(8, owners=OWNERS, chunk=2, width=2)
    programs = problem.programs()
    assert any(isinstance(step.operation, kind) and step.awaits for program in programs for step in program.steps)
    weaker = [
        with_steps(
            program, [step._replace(awaits=() if isinstance(step.operation, kind) else step.awaits) for step in program.steps]
        )
        for program in programs
    ]
    lanes = [device for device, program in enumerate(programs) for _ in program.streams]
    replayed(programs, problem.grid)
    with pytest.raises(RaceError):
        for fast in (0, 1):
            for seed in range(20):
                replayed(weaker, problem.grid, [1e3 if device == fast else 1e-3 for device in lanes], seed)


@fewer_examples
@given(residue_problems())
def test_waits_name_earlier_steps_on_other_streams_and_none_twice(problem):
    for program in problem.programs():
        last = dict.fromkeys(((stream, other) for stream in StreamKind for other in StreamKind), -1)
        for position, step in enumerate(program.steps):
            for earlier in step.waits:
                other = program.steps[earlier].stream
                assert last[step.stream, other] < earlier < position
                assert other is not step.stream
                last[step.stream, other] = earlier


@fewer_examples
@given(residue_problems())
def test_not_beside_every_kernel_is_on_the_compute_stream(problem):
    for program in replace(problem, beside=False).programs():
        kernels = {step.stream for step in program.steps if step.kind is StepKind.COMPUTE}
        generations = {step.stream for step in program.steps if step.kind is StepKind.GENERATE}
        assert kernels - {StreamKind.PEER} == {StreamKind.COMPUTE} and generations <= {StreamKind.COMPUTE}


def first_readers(program: Program) -> dict[int, StreamKind]:
    """Of each copy of a strip or a diagonal tile the stream that uses it first, by position of the copy."""
    filled: dict[object, int] = {}
    readers: dict[int, StreamKind] = {}
    for position, step in enumerate(program.steps):
        work = step.operation
        if isinstance(work, Product):
            slots = (work.left, *range(work.right, work.right + work.n_columns))
            used: list[object] = [("strip", slot, at) for slot in slots for at in range(work.start, work.stop)]
        else:
            used = [work.diagonal] if isinstance(work, Trsm) else []
        for spot in used:
            if spot in filled:
                readers.setdefault(filled[spot], step.stream)
        if isinstance(work, Pull):
            is_strip = work.place.pool is Pool.STRIP
            made = [("strip", work.place.slot, at) for at in range(work.start, work.stop)] if is_strip else [work.place]
            filled.update(dict.fromkeys(made, position))
        elif isinstance(work, Convert):
            filled.pop(("strip", work.strip, work.column), None)
        elif isinstance(work, Load):
            filled.pop(work.place, None)
    return readers


@fewer_examples
@given(residue_problems())
def test_strips_for_long_products_and_copies_inside_a_panel_do_not_share_a_stream(problem):
    for program in replace(problem, beside=True).programs():
        for position, reader in first_readers(program).items():
            expected = StreamKind.PEER if reader is StreamKind.COMPUTE else StreamKind.EXCHANGE
            assert program.steps[position].stream is expected


def test_both_kinds_of_copies_are_there():
    for program in make_problem(8, owners=OWNERS, chunk=2, width=2).programs():
        readers = set(first_readers(program).values())
        assert StreamKind.COMPUTE in readers and readers & set(rows.FINISHING)


@pytest.mark.parametrize(("strips", "ahead"), [(60, True), (20, False)])
def test_strips_of_the_next_panel_are_copied_before_it_starts_where_there_is_room(strips, ahead):
    problem = make_problem(16, owners=[row % 2 for row in range(16)], chunk=4, width=4, more=strips)
    late = []
    for program in problem.programs():
        for k0 in (4, 8, 12):  # a panel starts on a device with its first product in one of the panel's rows
            rows = range(k0, k0 + 4)
            start = next(
                at for at, step in enumerate(program.steps) if isinstance(step.operation, Product) and step.tile[1] == k0
            )
            pulls = [at for at, step in enumerate(program.steps) if is_strip_pull(step) and step.tile[0] in rows]
            assert pulls
            late += [at for at in pulls if program.steps[at].stream is StreamKind.PEER and at > start]
    assert (not late) == ahead


def is_strip_pull(step: Step) -> bool:
    """Whether a step copies a strip from another device."""
    return step.kind is StepKind.PULL and step.operation.place.pool is Pool.STRIP


@fewer_examples
@given(residue_problems())
def test_no_step_of_a_diagonal_tile_of_l_stands_where_strips_for_long_products_are_made(problem):
    for program in replace(problem, beside=True).programs():
        streams = {step.stream for step in program.steps if isinstance(step.operation, Potrf | Invert)}
        assert streams.isdisjoint({StreamKind.PEER, StreamKind.CONVERT, StreamKind.COPY_IN, StreamKind.COMPUTE})


@fewer_examples
@given(residue_problems())
def test_a_copy_of_a_strip_awaits_the_step_that_made_its_last_column(problem):
    programs = problem.programs()
    for program in programs:
        for step in program.steps:
            if step.kind is StepKind.PULL and step.operation.place.pool is Pool.STRIP:
                work = step.operation
                keys = [key.coords for key in step.awaits if key.name == STEP]
                made = [programs[work.device].steps[position] for device, position in keys if device == work.device]
                assert any(makes(maker.operation, work.source.slot, work.stop - 1) for maker in made)
                converts = [maker.operation for maker in made if isinstance(maker.operation, Convert)]
                assert not any(makes(other, work.source.slot, work.stop) for other in converts)


def test_a_slot_is_filled_again_after_the_copies_on_every_stream_of_another_device():
    builder, place = ProgramBuilder(0, PROBLEM.layout), Place(Pool.STRIP, 0)

    def awaited_after(*pulls: tuple[StreamKind, int]) -> set[tuple[int, ...]]:
        """Steps that the next writer awaits."""
        for stream, position in pulls:
            builder.pulled(place, 1, stream, position)
        work = Convert(Place(Pool.TILE, 0), 0, 0, is_first=True)
        builder.add(StepKind.COMPUTE, StreamKind.FINISH, tile_key((1, 0), 1), work, writes=(place,), columns=(0, 1))
        return {key.coords for key in builder.build().steps[-1].awaits}

    assert awaited_after((StreamKind.PEER, 5), (StreamKind.EXCHANGE, 7)) == {(1, 5), (1, 7)}
    assert awaited_after((StreamKind.PEER, 6), (StreamKind.EXCHANGE, 7)) == {(1, 6)}


def makes(work: object, slot: int, column: int) -> bool:
    """Whether an operation makes a tile column of a strip."""
    if isinstance(work, Convert):
        return (work.strip, work.column) == (slot, column)
    return isinstance(work, Pull) and work.place == Place(Pool.STRIP, slot) and work.start <= column < work.stop


@fewer_examples
@given(residue_problems())
def test_products_do_not_wait_for_columns_behind_theirs_nor_new_columns_for_products(problem):
    for program in problem.programs():
        for step in program.steps:
            work, before = step.operation, [program.steps[position].operation for position in step.waits]
            if isinstance(work, Product):
                assert all(other.column < work.stop for other in before if isinstance(other, Convert))
            if isinstance(work, Convert) and work.column:
                assert not any(isinstance(other, Product) for other in before)


# work, bytes, memory


@fewer_examples
@given(residue_problems())
def test_counted_flops_are_those_of_the_tasks(problem):
    programs = problem.programs()
    assert sum(program.flops for program in programs) == sum(flops(task, problem.grid) for task in tasks_of(problem.grid))
    for program in programs:
        assert program.flops == sum(step.flops for step in program.steps)


@fewer_examples
@given(residue_problems())
def test_every_tile_is_made_by_the_owner_of_its_row_and_written_once(problem):
    programs, written = problem.programs(), []
    for device, program in enumerate(programs):
        for step in program.steps:
            if isinstance(step.operation, Potrf | Trsm | Reconstruct | Store):
                assert problem.owners[step.tile[0]] == device
            if isinstance(step.operation, Convert) and step.operation.is_first:
                assert problem.owners[step.tile[0]] == device
        written += [step.tile for step in program.steps if step.kind is StepKind.WRITE]
    assert sorted(written) == sorted(problem.grid.tiles())


@fewer_examples
@given(residue_problems())
def test_bytes_per_link(problem):
    grid, programs = problem.grid, problem.programs()
    triangle = sum(grid.entries(i, j) for i, j in grid.tiles())
    diagonal = sum(grid.entries(i, i) for i in range(grid.nt))
    total = [sum(program.link_bytes[link] for program in programs) for link in Link]
    assert total[Link.SOURCE] == (problem.source_itemsize or 0) * (triangle + len(programs) * diagonal)
    assert total[Link.WRITE] == 8 * triangle
    assert total[Link.PEER] == 0 or len(programs) > 1
    moved = [step.nbytes for program in programs for step in program.steps if step.kind is StepKind.PULL]
    assert total[Link.PEER] == sum(moved)


@fewer_examples
@given(residue_problems())
def test_slots_in_use_never_exceed_the_arena(problem):
    for program in problem.programs():
        assert program.peak_bytes == max(step.resident for step in program.steps) <= program.layout.arena_bytes
        assert min(step.resident for step in program.steps) >= 0


@fewer_examples
@given(
    n=st.integers(1, 400),
    nb=st.sampled_from([16, 32, 48]),
    devices=st.integers(1, 3),
    moduli=st.integers(4, 16),
    extra=st.floats(1.0, 30.0),
)
def test_a_plan_stays_in_its_budget_and_the_budget_that_an_error_names_suffices(n, nb, devices, moduli, extra):
    options = {"tile_size": nb, "devices": devices, "fp64": "residue", "moduli": moduli}
    with pytest.raises(BudgetError, match="give that much or more") as caught:
        oc.plan(n, memory_budget=100, **options)
    assert caught.value.budget_bytes == 100
    for budget in (caught.value.needed_bytes, int(extra * caught.value.needed_bytes)):
        plan = oc.plan(n, memory_budget=budget, **options)
        assert plan.engine == "residue" and plan.moduli == moduli
        for program, share in zip(plan.programs, plan.budgets, strict=True):
            assert program.layout.arena_bytes + share.workspace_bytes <= budget
        assert plan.peak_bytes <= budget
        assert plan.flops == sum(flops(task, plan.grid) for task in tasks_of(plan.grid))
    with pytest.raises(BudgetError):
        oc.plan(n, memory_budget=caught.value.needed_bytes - 1, **options)


@fewer_examples
@given(nt=st.integers(1, 40), nb=st.sampled_from([16, 256, 2048, 8192]), moduli=st.integers(4, 16), share=st.floats(0.3, 4.0))
def test_every_layout_fits_its_bytes_and_none_needs_less_than_the_least(nt, nb, moduli, share):
    grid = TileGrid(nt * nb, nb)
    least = least_layout(grid, moduli).arena_bytes
    nbytes = int(share * least)
    layouts = list(residue_layouts(grid, nbytes, moduli))
    assert bool(layouts) == (nbytes >= least)
    assert all(least <= layout.arena_bytes <= nbytes for layout in layouts)
    assert len(set(layouts)) == len(layouts)


# folds


@pytest.mark.parametrize(("columns", "n_folds", "folds"), [(1, 0, False), (2, 1, False), (2, 0, True)])
def test_sums_of_more_terms_than_int32_holds_are_folded(columns, n_folds, folds):
    nb = MOST_TERMS // 4
    problem = make_problem(4 + columns, nb=nb, chunk=1, width=1, more=2, folds=folds)
    programs = problem.programs()
    simulate(programs, problem.grid, None)
    replayed(programs, problem.grid)
    assert sum(isinstance(step.operation, Fold) for program in programs for step in program.steps) == n_folds


@fewer_examples
@given(problem=residue_problems(), most=st.integers(0, 9), seed=SEEDS)
def test_sums_are_folded_in_time_wherever_the_limit_is(problem, most, seed):
    longest = problem.layout.chunk * problem.grid.nb
    limit = longest + most + problem.layout.basis.moduli[0]  # what a fold leaves counts as so many terms
    with pytest.MonkeyPatch.context() as patch:
        for module in (rows, contents, replay):
            patch.setattr(module, "MOST_TERMS", limit)
        programs = problem.programs()
        simulate(programs, problem.grid, None)
        replayed(programs, problem.grid, (1.0, 1e-3), seed)
        assert not (problem.layout.folds and any(isinstance(step.operation, Fold) for each in programs for step in each.steps))


def test_a_plan_of_more_columns_than_int32_sums_takes():
    plan = oc.plan(MOST_TERMS + 4 * 8192, tile_size=8192, devices=["cuda:0", "cuda:1"], memory_budget="60 GiB", fp64="residue")
    steps = [step for program in plan.programs for step in program.steps]
    folded = {step.tile for step in steps if isinstance(step.operation, Fold)}
    assert folded
    assert all(column * 8192 > MOST_TERMS - 8192 * plan.layout.chunk for _, column in folded)
    assert plan.moduli == 13


def test_such_a_plan_where_products_leave_residues(monkeypatch):
    for module in (residues_planner, residue_tiles):
        monkeypatch.setattr(module, "folds_products", lambda _: True)
    forget_plans()
    plan = oc.plan(MOST_TERMS + 4 * 4096, tile_size=4096, devices=["cuda:0", "cuda:1"], memory_budget="60 GiB", fp64="residue")
    forget_plans()
    assert plan.layout.folds
    assert not any(isinstance(step.operation, Fold) for program in plan.programs for step in program.steps)


def test_too_many_rows_and_tiles_of_the_wrong_order_are_refused():
    options = {"devices": "cuda:0", "memory_budget": "100 GiB", "fp64": "residue"}
    with pytest.raises(ValueError, match=f"n is {MOST_ROWS + 1}, but residues have room for .* fp64='native'"):
        oc.plan(MOST_ROWS + 1, tile_size=4096, **options)
    with pytest.raises(ValueError, match="tile_size is 1000, but products through residues take multiples of 16"):
        oc.plan(4000, tile_size=1000, **options)
    with pytest.raises(ValueError, match="policy 'v3' orders tiles of native FP64"):
        oc.plan(4000, tile_size=256, policy="v3", **options)
    for moduli in (3, 17):
        with pytest.raises(ValueError, match=f"moduli is {moduli}, but from 4 to 16"):
            oc.plan(4000, moduli=moduli, **options)


# programs that are refused


def first(program: Program, kind: type, *, where=lambda step: True) -> int:
    """Position of the first step of one kind."""
    return next(at for at, step in enumerate(program.steps) if isinstance(step.operation, kind) and where(step))


def refused(problem: ResidueProblem, programs, match: str) -> None:
    """The simulator refuses ``programs`` with a text that says where."""
    simulate(problem.programs(), problem.grid, None)
    with pytest.raises(ScheduleError, match=match):
        simulate(programs, problem.grid, None)


PROBLEM = make_problem(6, chunk=2, width=2, more=1)


def with_operation(position: int, **what) -> list[Program]:
    """The program of PROBLEM, other facts in the operation of one step."""
    (program,) = PROBLEM.programs()
    return [on_other_places(program, position, **what)]


def test_products_in_another_order_are_refused():
    (program,) = PROBLEM.programs()
    row = 5
    at = [p for p, step in enumerate(program.steps) if isinstance(step.operation, Product) and step.tile == (row, 4)]
    steps = list(program.steps)
    steps[at[0]], steps[at[1]] = (steps[at[1]]._replace(waits=()), steps[at[0]]._replace(waits=()))
    refused(PROBLEM, [with_steps(program, steps)], r"product \(5, 4\)")


def test_a_product_with_a_strip_of_another_row_is_refused():
    (program,) = PROBLEM.programs()
    position = first(program, Product, where=lambda step: step.tile[0] > step.tile[1] + 1 and step.operation.n_columns > 1)
    work = program.steps[position].operation
    refused(
        PROBLEM, with_operation(position, left=work.right), r"product \(\d, \d\).* reads 2 tile columns of row \d in strip slot"
    )
    refused(
        PROBLEM, with_operation(position, right=work.right + 1), r"product \(\d, \d\).* reads 2 tile columns of row \d in strip"
    )
    refused(PROBLEM, with_operation(position, stop=work.stop + 1), r"product \(\d, \d\).* reads 3 tile columns of row \d")
    later = with_operation(position, start=work.start + 1, k=work.k + 1)
    refused(PROBLEM, later, r"product \(\d, \d\).* adds tile columns 1:2 of K to \(\d, \d\)")


@pytest.mark.parametrize("off", [-1, 1, 2])
def test_a_product_that_is_said_to_begin_elsewhere_is_refused(off):
    """By that tile column a run decides what is multiplied in FP16."""
    (program,) = PROBLEM.programs()
    position = first(program, Product, where=lambda step: step.operation.accumulates)
    k = program.steps[position].operation.k + off
    refused(PROBLEM, with_operation(position, k=k), rf"product \(\d, \d\).* is said to begin at tile column {k} of K, but chunk")


def test_a_product_that_comes_twice_or_forgets_what_was_summed_is_refused():
    (program,) = PROBLEM.programs()
    position = first(program, Product, where=lambda step: step.operation.accumulates)
    refused(PROBLEM, with_operation(position, accumulates=False), r"product \(\d, \d\).* overwrites its sum, which holds _Sum")
    again = program.steps[position]._replace(drops=())
    steps = [*program.steps[: position + 1], again, *program.steps[position + 1 :]]
    steps = [step._replace(waits=()) for step in steps]
    refused(PROBLEM, [with_steps(program, steps)], r"product \(\d, \d\).* adds tile columns")


def test_a_missing_fold_is_refused():
    problem = make_problem(6, nb=MOST_TERMS // 4, chunk=1, width=1, more=2)
    (program,) = problem.programs()
    steps = [step._replace(waits=()) for step in program.steps if not isinstance(step.operation, Fold)]
    refused(problem, [with_steps(program, steps)], r"product \(5, 5\).*: 163840 products in one int32 may overflow; fold before")


def test_a_tile_of_k_that_no_sum_holds_is_refused():
    problem = make_problem(2, nb=2 * MOST_TERMS, chunk=1, width=1, more=2)
    with pytest.raises(ScheduleError, match=r"fold \(1, 1\): column 0 of accumulator . holds nothing to fold"):
        simulate(problem.programs(), problem.grid, None)


def test_wrong_places_are_refused():
    (program,) = PROBLEM.programs()
    convert = first(program, Convert)
    refused(PROBLEM, with_operation(convert, column=1), r"convert \(1, 0\) goes to tile column 1 of a strip, but belongs to 0")
    refused(PROBLEM, with_operation(convert, strip=99), r"convert \(1, 0\): there is no slot 99 of STRIP")
    for kind, text in ((Load, "fetch"), (Potrf, "POTRF"), (Trsm, "TRSM"), (Store, "write"), (Reconstruct, "reconstruct")):
        refused(PROBLEM, with_operation(first(program, kind), place=Place(Pool.TILE, 77)), rf"{text}.*slot 77 of TILE")
    trsm = first(program, Trsm)
    refused(PROBLEM, with_operation(trsm, slot=5), r"TRSM \(1, 0\): inverse 5 belongs to column None")
    refused(PROBLEM, with_operation(trsm, diagonal=Place(Pool.TILE, 77)), r"TRSM \(1, 0\): slot 77 of TILE is empty")


def test_waits_on_later_steps_and_awaits_of_nothing_are_refused():
    (program,) = PROBLEM.programs()
    refused(PROBLEM, [changed(program, 5, waits=(9,))], "waits on step 9, which is enqueued after it")
    problem = make_problem(6, owners=OWNERS[:6], chunk=2, width=2)
    one, two = problem.programs()
    silent = with_steps(two, [step._replace(announced=False) for step in two.steps])
    refused(problem, [one, silent], r"the plan blocks: device 0 waits at step \d+ .* for .*, which is never written")


def test_a_pull_of_a_strip_that_is_not_there_is_refused():
    problem = make_problem(6, owners=OWNERS[:6], chunk=2, width=2)
    programs = problem.programs()
    for device, program in enumerate(programs):
        pulls = [at for at, step in enumerate(program.steps) if isinstance(step.operation, Pull) and step.kind is StepKind.PULL]
        for at in pulls:
            work = program.steps[at].operation
            wrong = list(programs)
            far = Place(work.source.pool, 98)
            wrong[device] = changed(program, at, operation=work._replace(source=far))
            refused(
                problem, wrong, r"pull \(\d, \d\)(: slot 98 of TILE of device \d is empty| of strip .*: the source holds None)"
            )
    assert pulls


def is_idle(step: Step) -> bool:
    """Whether nothing needs the step: row 0 has no products, and a negative entry on its diagonal is met by its pivot."""
    return isinstance(step.operation, Diagonal) and step.tile == (0, 0)


@fewer_examples
@given(data=st.data(), problem=residue_problems(most_devices=1))
def test_any_dropped_step_is_found(data, problem):
    (program,) = problem.programs()
    if problem.grid.nt == 1:  # nothing is converted, and exponents are for nothing
        return
    position = data.draw(st.integers(0, len(program.steps) - 1).filter(lambda at: not is_idle(program.steps[at])))
    steps = [step._replace(waits=()) for step in program.steps]  # later positions move
    del steps[position]
    with pytest.raises(ScheduleError):
        simulate([with_steps(program, steps)], problem.grid, None)


@fewer_examples
@given(residue_problems())
def test_steps_are_named_for_traces_and_every_task_has_its_steps(problem):
    programs = problem.programs()
    steps = [step for program in programs for step in program.steps]
    count = Counter(type(step.operation) for step in steps)
    nt = problem.grid.nt
    assert count[Potrf] == nt and count[Trsm] == nt * (nt - 1) // 2 and count[Diagonal] == nt * len(programs)
    assert count[Reconstruct] == count[Potrf] + count[Trsm] - nt  # none in the first column
    assert count[Invert] >= nt - 1
    for step in steps:
        assert f"({step.tile[0]}, {step.tile[1]})" in step.label
        assert step.is_pivot == isinstance(step.operation, Potrf)
    assert sum(step.flops for step in steps if isinstance(step.operation, Trsm)) == sum(
        flops(task, problem.grid) for task in tasks_of(problem.grid) if task.kind is TaskKind.TRSM
    )


def test_no_panel_is_wider_than_the_inverses_that_the_kernels_keep() -> None:
    grid = TileGrid(64 * 2048, 2048)
    assert max(layout.width for layout in residue_layouts(grid, 64 << 30, 13)) <= INVERSES
