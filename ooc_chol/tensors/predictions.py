"""Predicted seconds of a step that GPUs keep all of, by which it is decided how many of them take part."""

from __future__ import annotations

from collections.abc import Sequence

from ooc_chol.dense.rates.gpus import Ceilings, ceilings_of
from ooc_chol.hardware.registry import device_kind, is_here
from ooc_chol.precision.triples import Precision
from ooc_chol.tensors.share import TensorProblem, part_of

#: Share of the peak that products of a transform reach: 37 TFLOP/s in FP32, for 1,300 slices on an H200, and DGEMM's 52.
_SINGLE_SHARE, _DOUBLE_SHARE = 0.55, 0.78
#: Seconds for each vector that a group's thresholds make orthonormal, one after the other, however many slices it has: groups of
#: 85 slices of 512 x 512 take 5.5 ms on an H200, with 64 vectors, and 1,024 of 64 x 64 about 1 ms on an H100, with 16.
_VECTOR = 55e-6
#: How often thresholds read or write a slice, and its Gram matrix, in float64.
_SLICE_COPIES, _GRAM_COPIES = 4, 12
#: Estimates: seconds in which a panel is enqueued, by one thread for all GPUs, and those in which GPUs meet.
_ENQUEUED, _MEETING = 1e-4, 5e-4
#: Seconds that another number of GPUs must save, as a share: what is predicted is not better than that.
_LEAST_SAVED = 0.1


def predicted_steps(problem: TensorProblem, devices: Sequence[str]) -> tuple[float, ...]:
    """Seconds of a step on the first GPU, on two, and so on; none for the host, and where the GPUs differ or are not here."""
    if device_kind(devices[0]).is_in_host_memory or not all(map(is_here, devices)):
        return ()
    (facts, *others) = {device_kind(name).gpu_facts(name) for name in devices}
    if facts is None or others or (ceilings := ceilings_of(facts)) is None:
        return ()
    return tuple(step_seconds(problem, count, ceilings) for count in range(1, len(devices) + 1))


def paying_count(seconds: Sequence[float]) -> int:
    """The number of GPUs: each must save something beside the best of fewer."""
    best = 1
    for count in range(2, len(seconds) + 1):
        if seconds[count - 1] < (1 - _LEAST_SAVED) * seconds[best - 1]:
            best = count
    return best


def step_seconds(problem: TensorProblem, count: int, ceilings: Ceilings) -> float:
    """Seconds of a step in which first tries are enough, on ``count`` GPUs that keep everything."""
    thresholds = transforms = exchange = 0.0
    for number in range(count):
        panels, groups = part_of(problem.panels, number, count), part_of(problem.groups, number, count)
        columns, rows = problem.columns_of(panels), len(problem.slices(groups))
        thresholds = max(thresholds, len(groups) * _chain_seconds(problem) + rows * _slice_seconds(problem, ceilings))
        transforms = max(transforms, columns * _column_seconds(problem, ceilings))
        others = (problem.shape.components - rows) * columns + rows * (problem.shape.width - columns)
        exchange = max(exchange, others * problem.itemsize / (ceilings.peer or ceilings.link))
    seconds = thresholds + max(transforms, exchange, len(problem.panels) * _ENQUEUED)
    return seconds if count == 1 else seconds + _MEETING + exchange / len(part_of(problem.panels, count - 1, count))


def _chain_seconds(problem: TensorProblem) -> float:
    """Seconds of a group that more slices do not lengthen; all eigenpairs are found in as many steps as there are rows."""
    order = problem.shape.order
    return _VECTOR * (problem.warm_entries // order or order)


def _slice_seconds(problem: TensorProblem, ceilings: Ceilings) -> float:
    """Seconds of a slice's products and copies."""
    shape, order = problem.shape, problem.shape.order
    kept = problem.warm_entries // order or order
    flops = 2 * shape.width * (order + 2 * kept) + 8 * kept * order**2
    copied = 8 * (_SLICE_COPIES * shape.width + _GRAM_COPIES * order**2)
    return flops / (_DOUBLE_SHARE * ceilings.fp64) + copied / ceilings.memory


def _column_seconds(problem: TensorProblem, ceilings: Ceilings) -> float:
    """Seconds of a column of the unfolding: two products."""
    rate = _SINGLE_SHARE * ceilings.fp32 if problem.precision is Precision.FFF else _DOUBLE_SHARE * ceilings.fp64
    return 4 * problem.shape.vertices * problem.shape.components / rate
