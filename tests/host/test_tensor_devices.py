"""A tensor on devices: the same bits for every budget and number of devices, and bytes as they were planned."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import ooc_chol as oc
from ooc_chol import BudgetError, Trace
from ooc_chol.errors import ClosedError, NonFiniteTensorError
from tests import tensor_problems as make
from tests.inside.hardware import HostArena, HostDevice
from tests.inside.kernels import HostTensorKernels
from tests.inside.tensors import DeviceTensorSpace, HostTensorSpace, host_space
from tests.running_threads import running_threads

#: Problems of every kind: masks, routes, precisions, fewer eigenvectors than slices, and slices that are not square.
PROBLEMS = {
    "FDF": make.problem(),
    "subspace": make.problem(svt="subspace", seed=1),
    "FFF, svd": make.problem((20, 9, 50), precision="FFF", svt="svd", seed=2),
    "DDD by entry": make.problem(r=17, precision="DDD", by_entry=True, seed=3),
    "by entry, subspace": make.problem((31, 25, 15), r=31, svt="subspace", by_entry=True, seed=4),
}
every_problem = pytest.mark.parametrize("name", PROBLEMS)
DEVICES = (("host:0",), ("host:0", "host:1"), ("host:0", "host:1", "host:2"))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    make.small_pieces(monkeypatch)
    monkeypatch.setattr(host_space, "PANEL_COLUMNS", make.COLUMNS)


@every_problem
def test_bits_are_those_of_the_host_for_every_budget_and_number_of_devices(name):
    given = PROBLEMS[name]
    with HostTensorSpace(given.basis, given.observed.shape[1:], given.precision, given.svt) as space:
        expected = make.run(space, given, momentum=0.3)
    kept = set()
    for devices in DEVICES:
        for budget in make.budgets(given, devices):
            plan = make.plan_for(given, budget, devices)
            with DeviceTensorSpace(plan, given.basis) as space:
                found = make.run(space, given, momentum=0.3)
            assert found.bits() == expected.bits(), f"{devices} with {budget} bytes: {plan!r}"
            kept |= {(share.kept_panels, share.kept_groups, share.ring_slots) for share in plan.shares}
    assert len(kept) > 8, f"budgets made few ways to keep anything: {kept}"


@every_problem
def test_bytes_are_those_of_the_plan_and_memory_is_within_the_budget(name, monkeypatch):
    given, allocated = PROBLEMS[name], []
    original = HostArena.__init__

    def watched(self, *args):
        allocated.append(HostArena.bytes_for(*args))
        original(self, *args)

    monkeypatch.setattr(HostArena, "__init__", watched)
    for devices in DEVICES[:2]:
        for budget in make.budgets(given, devices, 5):
            plan = make.plan_for(given, budget, devices)
            allocated.clear()
            with DeviceTensorSpace(plan, given.basis) as space:
                assert space.executed_bytes == plan.open_bytes()
                space.load(given.observed, given.mask)
                before = dict(space.executed_bytes)
                assert before == _sum(plan.open_bytes(), plan.load_bytes())
                make.go_on(space, range(1))
                assert space.executed_bytes == _sum(before, plan.step_bytes())
                space.load(given.observed, given.mask, np.zeros_like(given.observed))
                assert space.executed_bytes == space.planned_bytes
            assert allocated == [share.peak_bytes for share in plan.shares]
            assert max(allocated) == plan.peak_bytes <= budget


def _sum(*links):
    return {link: sum(each.get(link, 0) for each in links) for link in set().union(*links)}


def test_in_core_only_figures_leave_the_devices_and_out_of_core_all_passes():
    given = PROBLEMS["FDF"]
    (n, m, k), r, item = given.observed.shape, given.basis.shape[1], given.observed.itemsize
    whole = make.plan_for(given)
    assert whole.is_in_core and whole.step_bytes() == {"host:0->memory": 8 * r + 16 * len(whole.problem.panels)}
    least = make.plan_for(given, make.least_budget(given))
    assert least.step_bytes()["memory->host:0"] == (2 * r + n) * m * k * item


def test_several_devices_copy_from_each_other_what_they_do_not_have(tmp_path):
    given = PROBLEMS["FDF"]
    plan = make.plan_for(given, devices=DEVICES[1])
    with DeviceTensorSpace(plan, given.basis, trace=True) as space:
        make.run(space, given, 2)
        trace = space.trace
    pulled = {share.device: 0 for share in plan.shares}
    for record in trace.records:
        if record.link.startswith("peer->"):
            pulled[record.link.removeprefix("peer->")] += record.nbytes
    assert all(pulled.values())
    loaded = Trace.load(trace.save(tmp_path / "run.pftrace"))
    assert sorted(map(_what, loaded.records)) == sorted(map(_what, trace.records))
    assert pulled == {name: space.executed_bytes[f"peer->{name}"] for name in pulled}
    assert space.seconds.exchange > 0


def _what(record):
    return record.device, record.stream, record.kind, record.label, record.nbytes, record.link


def test_the_trace_has_every_byte_of_a_step_and_all_work():
    given = PROBLEMS["subspace"]
    plan = make.plan_for(given, make.least_budget(given))
    with DeviceTensorSpace(plan, given.basis, trace=True) as space:
        make.run(space, given, 3)
        records = space.trace.records
        links = dict.fromkeys(space.executed_bytes, 0)
        for record in records:
            if record.link:
                links[record.link] += record.nbytes
        opened = plan.open_bytes()
        assert links == {link: nbytes - opened.get(link, 0) for link, nbytes in space.executed_bytes.items()}
        labels = [record.label for record in records]
        assert labels.count("threshold 2") == 3 and labels.count("panel 1") == 3
        assert all(record.end_ns >= record.start_ns > 0 for record in records)
        assert space.seconds.threshold > 0 and space.seconds.transform > 0


def test_no_trace_is_kept_unless_it_is_asked_for():
    given = PROBLEMS["FDF"]
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space:
        assert space.trace is None


def test_what_is_observed_stays_to_the_bit_and_what_is_missing_becomes_finite():
    given = PROBLEMS["DDD by entry"]
    with DeviceTensorSpace(make.plan_for(given, make.least_budget(given)), given.basis) as space:
        found = make.run(space, given).tensor
    assert np.array_equal(found[given.mask], given.observed[given.mask])
    assert np.isfinite(found).all() and found[~given.mask].any()


@pytest.mark.parametrize("part", [0, 3, 6])
def test_files_hold_what_devices_do_not_keep(tmp_path, part):
    given = PROBLEMS["by entry, subspace"]
    budget = list(make.budgets(given))[part]
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space:
        expected = make.run(space, given)
    plan = make.plan_for(given, budget, tier="file")
    with DeviceTensorSpace(plan, given.basis, folder=tmp_path) as space:
        assert make.run(space, given).bits() == expected.bits()
        assert space.executed_bytes == space.planned_bytes
        assert all("file" in link for link in space.executed_bytes)
        if not plan.is_in_core:
            assert isinstance(space._host.x, np.memmap)
    assert not list(tmp_path.iterdir())


def test_what_is_observed_may_be_a_file(tmp_path):
    given = PROBLEMS["FDF"]
    np.save(tmp_path / "observed.npy", given.observed)
    mapped = np.load(tmp_path / "observed.npy", mmap_mode="r")
    plan = make.plan_for(given, make.least_budget(given))
    with DeviceTensorSpace(plan, given.basis) as space:
        expected = make.run(space, given)
        found = make.run(space, given._replace(observed=mapped))
    assert found.bits() == expected.bits()


@pytest.mark.parametrize("name", ["subspace", "DDD by entry"])
@pytest.mark.parametrize("devices", DEVICES[:2])
def test_a_run_goes_on_to_the_same_bits_on_other_devices_with_another_budget(name, devices):
    given = PROBLEMS[name]
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space:
        make.run(space, given, 2, momentum=0.2)
        state = space.take(), [each.copy() for each in space.warm()]
        expected = make.go_on(space, range(2, 5), momentum=0.2)
    for budget in make.budgets(given, devices, 3):
        with DeviceTensorSpace(make.plan_for(given, budget, devices), given.basis) as space:
            space.load(given.observed, given.mask, state[0])
            space.warm_up(state[1])
            assert make.go_on(space, range(2, 5), momentum=0.2).bits() == expected.bits()


def test_slices_are_taken_by_range():
    given = PROBLEMS["FDF"]
    for budget in make.budgets(given, count=3):
        with DeviceTensorSpace(make.plan_for(given, budget), given.basis) as space:
            whole = make.run(space, given, 1).tensor
            assert np.array_equal(space.take(range(5, 11)), whole[5:11])


def test_devices_without_panels_or_groups_have_nothing_to_do():
    given = make.problem((5, 9, 11), seed=6)
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space:
        expected = make.run(space, given)
    devices = [f"host:{number}" for number in range(4)]
    for budget in make.budgets(given, devices, 3):
        plan = make.plan_for(given, budget, devices)
        assert any(not share.panels for share in plan.shares) and any(not share.groups for share in plan.shares)
        with DeviceTensorSpace(plan, given.basis) as space:
            assert make.run(space, given).bits() == expected.bits()
            assert space.executed_bytes == space.planned_bytes


def test_a_second_problem_begins_anew():
    given, other = PROBLEMS["subspace"], make.problem(svt="subspace", seed=9)
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space:
        expected = make.run(space, given)
        make.run(space, other)
        assert make.run(space, given).bits() == expected.bits()


def test_a_step_before_anything_is_loaded_is_refused():
    given = PROBLEMS["FDF"]
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space, pytest.raises(ValueError, match="call load first"):
        space.step(1.0)


def test_a_tensor_that_overflows_is_told():
    given = PROBLEMS["DDD by entry"]
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space:
        with pytest.raises(NonFiniteTensorError, match="slice 0 of the tensor's transform"):
            space.load(given.observed * 1e200, given.mask)
        with pytest.raises(ValueError, match="call load first"):
            space.largest()
        space.load(given.observed, given.mask)
        assert np.isfinite(space.largest())


@pytest.mark.parametrize("devices", DEVICES[:2])
@pytest.mark.parametrize("failing", ["transform", "threshold_in_turns", "fill"])
def test_an_error_of_a_kernel_closes_the_devices(monkeypatch, failing, devices):
    given, closed = PROBLEMS["FDF"], []
    close = HostDevice.close
    monkeypatch.setattr(HostDevice, "close", lambda self: (closed.append(self.name), close(self)))
    threads = running_threads()
    with DeviceTensorSpace(make.plan_for(given, make.least_budget(given, devices), devices), given.basis) as space:
        space.load(given.observed, given.mask)

        def broken(self, *args, **options):
            raise RuntimeError("this kernel is broken")

        monkeypatch.setattr(HostTensorKernels, failing, broken)
        with pytest.raises(RuntimeError, match="this kernel is broken"):
            space.step(1.0)
        assert set(closed) == set(devices)
        assert running_threads() == threads
        with pytest.raises(ClosedError, match="this space is closed"):
            space.step(1.0)
        with pytest.raises(ClosedError, match="this space is closed"):
            space.take()


def waits_between(monkeypatch, fail=lambda stream: None):
    """Thresholds wait for their stream, as those of a GPU do; returns the streams whose thresholds went on, in that order."""
    original, went_on = HostTensorKernels.threshold_in_turns, []

    def waiting(self, stream, *args, **options):
        fail(stream)
        yield stream.record()
        yield from original(self, stream, *args, **options)
        yield stream.record()
        went_on.append(stream)

    monkeypatch.setattr(HostTensorKernels, "threshold_in_turns", waiting)
    return went_on


@pytest.mark.parametrize("devices", DEVICES)
def test_thresholds_that_wait_change_no_bit_and_let_others_go_on(monkeypatch, devices):
    given = PROBLEMS["by entry, subspace"]
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space:
        expected = make.run(space, given)
    for budget in make.budgets(given, devices, 3):
        with monkeypatch.context() as patched, DeviceTensorSpace(make.plan_for(given, budget, devices), given.basis) as space:
            went_on = waits_between(patched)
            assert make.run(space, given).bits() == expected.bits()
            assert space.executed_bytes == space.planned_bytes
            assert len(set(went_on)) == len(devices)


@pytest.mark.parametrize("failing", range(2))
def test_an_error_that_a_threshold_waits_for_closes_the_devices(monkeypatch, failing):
    given, threads = PROBLEMS["subspace"], running_threads()
    with DeviceTensorSpace(make.plan_for(given, devices=DEVICES[1]), given.basis) as space:
        space.load(given.observed, given.mask)

        def broken():
            raise OSError("the cable is out")

        computing = space._parts[failing].computing
        waits_between(monkeypatch, lambda stream: stream.enqueue(broken) if stream is computing else None)
        with pytest.raises(OSError, match="the cable is out"):
            space.step(1.0)
        assert running_threads() == threads
        with pytest.raises(ClosedError, match="this space is closed"):
            space.step(1.0)


def test_an_error_while_a_stream_works_closes_the_devices(monkeypatch):
    given = PROBLEMS["FDF"]
    with DeviceTensorSpace(make.plan_for(given, make.least_budget(given)), given.basis) as space:
        space.load(given.observed, given.mask)

        def broken(index):
            raise OSError("the disk is gone")

        monkeypatch.setattr(space._host.x_tier, "_show", broken)
        with pytest.raises(OSError, match="the disk is gone"):
            space.step(1.0)
        with pytest.raises(ClosedError, match="this space is closed"):
            space.step(1.0)


def test_a_device_that_does_not_open_closes_the_others(monkeypatch):
    given, closed = PROBLEMS["FDF"], []
    close, allocate = HostDevice.close, HostDevice.allocate
    monkeypatch.setattr(HostDevice, "close", lambda self: (closed.append(self.name), close(self)))

    def refused(self, *args, **options):
        if self.name == "host:1":
            raise BudgetError("arena of host:1", 2, 1, "give less")
        return allocate(self, *args, **options)

    monkeypatch.setattr(HostDevice, "allocate", refused)
    with pytest.raises(BudgetError, match="arena of host:1"):
        DeviceTensorSpace(make.plan_for(given, devices=DEVICES[1]), given.basis)
    assert closed == ["host:1", "host:0"] or closed == ["host:0", "host:1"]


def test_closing_twice_does_nothing_and_ends_all_threads():
    given, threads = PROBLEMS["FDF"], running_threads()
    space = DeviceTensorSpace(make.plan_for(given, devices=DEVICES[1]), given.basis)
    assert running_threads() > threads
    space.close()
    space.close()
    assert running_threads() == threads
    assert space._host.x.size == 0
    assert not any(part._arrays for part in space._parts)


def test_a_space_that_nobody_holds_any_more_is_closed():
    given, threads = PROBLEMS["FDF"], running_threads()
    space = DeviceTensorSpace(make.plan_for(given, devices=DEVICES[1]), given.basis)
    space.load(given.observed, given.mask)
    assert running_threads() > threads
    del space
    gc.collect()
    assert running_threads() == threads


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observed": np.zeros((29, 21, 23))}, "observed is float64 of shape"),
        ({"observed": np.zeros((29, 21, 22), np.float32)}, "takes float32 of shape"),
        ({"observed": np.zeros((29, 42, 23), np.float32)[:, ::2]}, "row-major"),
        ({"mask": np.ones((29, 21, 23), bool)}, "a mask of slices"),
        ({"mask": np.ones(29, np.uint8)}, "mask is uint8"),
    ],
)
def test_what_does_not_fit_the_plan_is_refused(change, message):
    given = PROBLEMS["FDF"]
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space:
        changed = given._replace(**change)
        with pytest.raises(ValueError, match=message):
            space.load(changed.observed, changed.mask)
        space.load(given.observed, given.mask)  # it stays open


def test_a_basis_of_another_shape_and_a_folder_that_does_not_fit_are_refused(tmp_path):
    given = PROBLEMS["FDF"]
    with pytest.raises(ValueError, match="the basis has shape"):
        DeviceTensorSpace(make.plan_for(given), given.basis[:, :5])
    with pytest.raises(ValueError, match="they go together"):
        DeviceTensorSpace(make.plan_for(given), given.basis, folder=tmp_path)
    with pytest.raises(ValueError, match="they go together"):
        DeviceTensorSpace(make.plan_for(given, tier="file"), given.basis)


def test_a_warm_start_of_another_shape_is_refused():
    given = PROBLEMS["subspace"]
    with DeviceTensorSpace(make.plan_for(given), given.basis) as space:
        space.load(given.observed, given.mask)
        with pytest.raises(ValueError, match="a warm start has shapes"):
            space.warm_up([])


def _imputed(given, graph, **options):
    return oc.impute(given.observed, given.mask, graph, svt=given.svt, precision=given.precision, n_lambdas=6, **options)


@pytest.mark.parametrize("name", ["subspace", "DDD by entry"])
@pytest.mark.usefixtures("long")
def test_impute_gives_the_same_bits_on_devices_with_any_budget(name, tmp_path):
    given, ring = PROBLEMS[name], np.roll(np.eye(29), 1, axis=1) + np.roll(np.eye(29), -1, axis=1)
    given = given._replace(basis=np.empty((29, 29)))
    expected = _imputed(given, ring, devices="host:0")
    assert expected.report.bytes.executed == {}
    for devices in DEVICES[:2]:
        for budget in make.budgets(given, devices, 3):
            found = _imputed(given, ring, devices=devices, memory_budget=budget, trace=True)
            assert found.tensor.tobytes() == expected.tensor.tobytes()
            assert [row.change for row in found.history] == [row.change for row in expected.history]
            assert found.report.bytes.executed == found.report.bytes.planned != {}
            assert found.report.devices == devices and len(found.trace.records) > 0
    in_files = _imputed(given, ring, devices="host:0", memory_budget=make.least_budget(given), work_folder=tmp_path)
    assert in_files.tensor.tobytes() == expected.tensor.tobytes()
    assert "file->host:0" in in_files.report.bytes.executed


def test_impute_goes_on_from_a_checkpoint_with_another_budget(tmp_path):
    given, ring = PROBLEMS["subspace"], np.roll(np.eye(29), 1, axis=1) + np.roll(np.eye(29), -1, axis=1)
    expected = _imputed(given, ring, devices="host:0")
    path = tmp_path / "state.oocimp"

    def stop(row, estimate):
        if len(list(tmp_path.iterdir())) and row.lam < expected.history[2].lam * 1.1:
            raise RuntimeError("the machine went down")

    with pytest.raises(RuntimeError, match="the machine went down"):
        _imputed(given, ring, devices="host:0", memory_budget=make.least_budget(given), checkpoint=path, callback=stop)
    found = _imputed(given, ring, devices=DEVICES[1], memory_budget="1 GiB", checkpoint=path)
    assert found.report.resumed == 3
    assert found.tensor.tobytes() == expected.tensor.tobytes()


def test_a_budget_that_impute_refuses_says_what_would_do():
    given, ring = PROBLEMS["FDF"], np.roll(np.eye(29), 1, axis=1) + np.roll(np.eye(29), -1, axis=1)
    with pytest.raises(BudgetError, match="memory_budget of host:0") as found:
        _imputed(given, ring, devices="host:0", memory_budget="8 KiB")
    _imputed(given, ring, devices="host:0", memory_budget=found.value.needed_bytes)


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_kernels_of_a_panel_are_captured_when_they_come_again(monkeypatch, devices, share):
    """Once for each panel, whatever is brought for it; another momentum is another capture, and the bits stay."""
    given = PROBLEMS["by entry, subspace"]
    whole = make.plan_for(given, devices=devices)
    least = make.least_budget(given, devices)
    plan = make.plan_for(given, least + int(share * (whole.peak_bytes - least)), devices)
    captured, launched = [], []

    def capture(self, stream, enqueue):
        captured.append((self.name, stream.name))

        def launch():
            launched.append(self.name)
            enqueue()

        return launch

    with HostTensorSpace(given.basis, given.observed.shape[1:], given.precision, given.svt) as space:
        expected = make.run(space, given, 5, momentum=0.3)
    monkeypatch.setattr(HostDevice, "captured", capture)
    with DeviceTensorSpace(plan, given.basis) as space:
        found = make.run(space, given, 5, momentum=0.3)
        panels = len(plan.problem.panels)
        assert len(captured) == panels and len(launched) == 4 * panels
        assert sorted(name for name, _ in captured) == sorted(share.device for share in plan.shares for _ in share.panels)
        make.go_on(space, range(2), momentum=0.1)
        assert len(captured) == 2 * panels and len(launched) == 5 * panels
    assert found.bits() == expected.bits()
