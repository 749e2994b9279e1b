"""Items of several makers in turn, each in a thread of its own and one item ahead of the one who takes them."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

from ooc_chol.process.threads import OwnThread, start, take, wait_out

Item = TypeVar("Item")
Result = TypeVar("Result")

_Orders: TypeAlias = "queue.SimpleQueue[Item | None]"
_Made: TypeAlias = "queue.SimpleQueue[tuple[Result | None, BaseException | None]]"


def made_ahead(makers: Sequence[Callable[[Item], Result]], items: Sequence[Item]) -> Generator[Result]:
    """Results of ``makers[i % len(makers)](items[i])``, in order; each maker makes its next item while the last is in use."""
    count = len(makers)
    orders: list[_Orders[Item]] = [queue.SimpleQueue() for _ in makers]
    made: list[_Made[Result]] = [queue.SimpleQueue() for _ in makers]
    threads = [OwnThread(_make, each, "maker") for each in zip(makers, orders, made, strict=True)]
    try:
        for thread in threads:
            start(thread)
        for number, item in enumerate(items[:count]):
            orders[number].put(item)
        for number in range(len(items)):
            result, error = take(made[number % count])
            if error is not None:
                raise error
            if number + count < len(items):
                orders[number % count].put(items[number + count])
            yield result  # type: ignore[misc] # there is one, or an error
            del result
    finally:
        for order in orders:
            order.put(None)
        wait_out(threads)


def _make(maker: Callable[[Item], Result], orders: _Orders[Item], made: _Made[Result]) -> None:
    """Make what is ordered until told to end; a thread's body."""
    while (item := orders.get()) is not None:
        try:
            made.put((maker(item), None))
        except BaseException as error:  # raised again by the one who takes what is made
            made.put((None, error))
