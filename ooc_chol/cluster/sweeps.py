"""The tasks of solves and products with L on a cluster, for a few columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ooc_chol.cluster.blocks import BlockPlace
from ooc_chol.cluster.triangles import Triangle, multiplied, multiplied_by_adjoint, solved_backward, solved_forward

#: How often Dask runs a task again that could not read: storage that others share fails now and then.
RETRIES = 2


@dataclass(frozen=True)
class ClusterSweeps:
    """Submits the tasks; pieces are futures of them, or arrays that travel inside the first task that takes them."""

    client: Any  #: Where the tasks go
    triangle: Triangle  #: How L is cut
    held: Mapping[BlockPlace, Any] | str  #: The blocks of L; or the URL of the Zarr group that has them
    #: Address of the worker that is best asked for a block row; empty where Dask is to find it by the bytes that it has
    owners: Sequence[str]
    span: int  #: Block columns that one task takes: few, where few columns are to keep many workers busy

    @property
    def n_blocks(self) -> int:
        """Number of block rows."""
        return self.triangle.blocks.n_blocks

    def groups(self, first: int = 0) -> Iterator[range]:
        """Block columns from ``first`` on, as many to a range as a task takes; cut at the same places whatever is first."""
        for start in range(first - first % self.span, self.n_blocks, self.span):
            yield range(max(start, first), min(start + self.span, self.n_blocks))

    def submit(self, task: Callable[..., Any], row: int, columns: range, *pieces: Any) -> Any:
        """A task with tiles of block row ``row`` in ``columns``, on the worker that has them. Upper block rows go first."""
        blocks: Any = self.held
        if not isinstance(self.held, str):
            blocks = [self.held[BlockPlace(row, column)] for column in range(columns.start, min(columns.stop, row + 1))]
        where: dict[str, Any] = {"workers": [self.owners[row]], "allow_other_workers": True} if self.owners else {}
        retries = RETRIES if isinstance(self.held, str) else 0
        return self.client.submit(task, self.triangle, blocks, row, columns, *pieces, pure=False, retries=retries, **where)

    def carried(self, what: Any) -> Any:
        """Input of several tasks as the result of one task: it travels to the cluster once, and is there again if it is lost."""
        return self.client.submit(_itself, what, pure=False)

    def forward(self, b: Sequence[Any], first: int = 0) -> list[Any]:
        """Solve ``L y = b`` from block row ``first`` on: ``y[s] = inv(L[s, s]) (b[s] - sum_q L[s, q] y[q])``, each a piece."""
        solved: list[Any] = []
        for row in range(first, self.n_blocks):
            x = b[row - first]
            for columns in self.groups(first):
                if columns.start <= row:
                    x = self.submit(solved_forward, row, columns, x, solved[columns.start - first : columns.stop - first])
            solved.append(x)
        return solved

    def backward(self, y: Sequence[Any], first: int = 0) -> list[Any]:
        """Solve ``L.H z = y``: ``z[p] = inv(L[p, p]).H (y[p] - sum_s L[s, p].H z[s])``. A piece for each of the groups."""
        groups = list(self.groups(first))
        found: list[Any] = [list(y[columns.start - first : columns.stop - first]) for columns in groups]
        for row in reversed(range(first, self.n_blocks)):
            below, start = None, 0
            for number in reversed(range(len(groups))):
                columns = groups[number]
                if columns.start > row:
                    continue
                found[number] = self.submit(solved_backward, row, columns, found[number], below, start)
                if row in columns:
                    below, start = found[number], columns.start
        return found

    def product(self, z: Sequence[Any]) -> list[Any]:
        """Multiply ``L @ z``: a piece for each block row."""
        rows = range(self.n_blocks)
        return [self.submit(multiplied, row, range(row + 1), list(z[: row + 1])) for row in rows]

    def adjoint_product(self, z: Sequence[Any]) -> list[Any]:
        """Multiply ``L.H @ z``: a piece for each of the groups, to which one block row after the other adds its part."""
        groups = list(self.groups())
        found: list[Any] = [None] * len(groups)
        for row in range(self.n_blocks):
            for number, columns in enumerate(groups):
                if columns.start <= row:
                    found[number] = self.submit(multiplied_by_adjoint, row, columns, found[number], z[row])
        return found


def _itself(what: Any) -> Any:
    return what
