"""A on a cluster: what every worker reads for itself, blocks that Dask makes, and blocks that the client sends."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ooc_chol.cluster.blocks import BlockGrid, BlockPlace
from ooc_chol.cluster.connection import is_dask_array
from ooc_chol.cluster.placing import Placing, priority
from ooc_chol.cluster.tasks import kept, packed, unpacked
from ooc_chol.cluster.waiting import gathered
from ooc_chol.config import format_bytes
from ooc_chol.dense.fingerprint import BLOCK, Fingerprint, fingerprint_from, fingerprint_of, sampled_blocks
from ooc_chol.display.prints import frames_of_the_package
from ooc_chol.errors import BudgetWarning, UnsupportedTypeError
from ooc_chol.formats import PrecisionFormat
from ooc_chol.hardware.registry import resolve_devices
from ooc_chol.memory.sources import AbstractSource, triangle_source
from ooc_chol.memory.sources.base import check_dtype, check_shape
from ooc_chol.process.address_space import guarded_imports

#: Devices of a worker, as options name them.
Devices: TypeAlias = str | Sequence[str] | int | None
#: Bytes of a triangle above which the client warns that it sends it: as much stays with the scheduler, too.
MOST_SENT_BYTES = 1 << 30


class AbstractClusterMatrix(ABC):
    """A, as the tasks of a run get it."""

    name: str  #: Kind of the source in plans and reports
    n: int  #: Order of the matrix
    dtype: np.dtype[Any]  #: Type of its entries
    #: What every worker reads A from; None where tasks are given blocks
    source: AbstractSource | None = None
    is_transposed: bool = False  #: Whether the upper triangle of what was given is read
    files: tuple[str, ...] = ()  #: Files that A is read from, as far as they are known

    def cut(self, blocks: BlockGrid, fmt: PrecisionFormat) -> None:  # noqa: B027 - what workers read needs no cutting
        """Prepare :meth:`blocks` of that cut, in the type of the factor."""

    def blocks(self, client: Any, places: Sequence[BlockPlace], placing: Placing) -> Mapping[BlockPlace, Any]:
        """Futures of the entries of A at these places; none where workers read for themselves."""
        return {}

    def diagonal(self, client: Any) -> Any:
        """A future of A's diagonal; None where workers read for themselves."""
        return None

    @abstractmethod
    def fingerprint(self, client: Any, fmt: PrecisionFormat, devices: Devices) -> Fingerprint:
        """Fingerprint of A; ``devices`` are those of each worker."""

    def close(self) -> None:
        """Let go of what the client has open to look at A."""
        if self.sampled is not None:
            self.sampled.close()

    @property
    def sampled(self) -> AbstractSource | None:
        """Source in which the client can sample both triangles; None where nothing is here."""
        return self.source

    def describe(self, row: int, col: int) -> str | None:
        """Describe an entry that is no number, as far as the client can tell."""
        return None

    def lost(self, row: int, col: int, dtype: np.dtype[Any]) -> str | None:
        """Describe a finite entry that a type has as an infinity or as zero, as far as the client can tell."""
        return None


@final
class ReadMatrix(AbstractClusterMatrix):
    """A function, a file or a Zarr array: every worker reads, or makes, the tiles of its windows."""

    def __init__(self, source: AbstractSource) -> None:
        self.source, self.name, self.n, self.dtype = source, source.name, source.n, source.dtype
        self.is_transposed, self.files = source.is_transposed, source.files

    def lost(self, row: int, col: int, dtype: np.dtype[Any]) -> str | None:
        return None if self.source is None else self.source.lost(row, col, dtype)

    def fingerprint(self, client: Any, fmt: PrecisionFormat, devices: Devices) -> Fingerprint:
        """Read, or make, the sample on a worker, as tiles are."""
        found: Fingerprint = gathered(client, client.submit(_fingerprint_here, packed(self.source), fmt, devices, pure=False))
        return found


@final
class DaskMatrix(AbstractClusterMatrix):
    """An array of Dask: its graph, cut anew into blocks of the lower triangle, each of which Dask makes for its task."""

    name = "dask"

    def __init__(self, a: Any, lower: bool | None) -> None:
        self.n, self.dtype = check_shape(_known_shape(a), "the Dask array"), a.dtype
        check_dtype(a.dtype, "the Dask array")
        self.is_transposed = lower is False
        if self.is_transposed and a.dtype.kind == "c":
            advice = "its transpose is its conjugate, too: pass A.conj().T, whose lower triangle is read"
            raise UnsupportedTypeError("lower=False", a.dtype.name, advice)
        self._a = a.T if self.is_transposed else a
        self._blocks: Any = None

    def cut(self, blocks: BlockGrid, fmt: PrecisionFormat) -> None:
        """Rechunk lazily to blocks; nothing is computed."""
        chunks = tuple(len(blocks.rows(block)) for block in range(blocks.n_blocks))
        self._blocks = self._a.rechunk((chunks, chunks)).to_delayed()

    def blocks(self, client: Any, places: Sequence[BlockPlace], placing: Placing) -> Mapping[BlockPlace, Any]:
        """Ask Dask for blocks, near their owners; chunks that several of them need are made once."""
        futures: dict[BlockPlace, Any] = {}
        for owner in {placing.owner(place) for place in places}:
            mine = [place for place in places if placing.owner(place) == owner]
            asked = _with_their_own_tasks([self._blocks[place.row, place.column] for place in mine])
            options = {**placing.near(mine[0]), "priority": priority(mine[0])}
            futures.update(zip(mine, client.compute(asked, optimize_graph=False, **options), strict=True))
        return futures

    def fingerprint(self, client: Any, fmt: PrecisionFormat, devices: Devices) -> Fingerprint:
        """Let Dask compute the sample."""
        places, order = sampled_blocks(self.n), min(BLOCK, self.n)
        asked = [self._a[row : row + order, col : col + order] for row, col in places]
        read = [np.asarray(block).astype(fmt.dtype) for block in gathered(client, client.compute(asked))]
        return fingerprint_from(self.n, self.dtype, places, read)

    def diagonal(self, client: Any) -> Any:
        """Ask Dask for the diagonal."""
        with guarded_imports(blas=False):
            import dask.array

        return client.compute(dask.array.diagonal(self._a))


@final
class SentMatrix(AbstractClusterMatrix):
    """A matrix that only this process can read: it reads and sends block after block."""

    def __init__(self, source: AbstractSource) -> None:
        self._source, self.name, self.n, self.dtype = source, source.name, source.n, source.dtype
        self.is_transposed, self.files = source.is_transposed, source.files
        if (nbytes := self.n**2 // 2 * source.dtype.itemsize) > MOST_SENT_BYTES:
            warnings.warn(
                f"A is in this process alone: {format_bytes(nbytes)} go from here to workers through the scheduler, which keeps "
                "them until L is closed; give a Dask array, a Zarr array, a file that all workers see, or from_function",
                BudgetWarning,
                stacklevel=frames_of_the_package() + 1,
            )

    def cut(self, blocks: BlockGrid, fmt: PrecisionFormat) -> None:
        """Note what is sent."""
        self._cut, self._fmt = blocks, fmt

    def blocks(self, client: Any, places: Sequence[BlockPlace], placing: Placing) -> Mapping[BlockPlace, Any]:
        """Read and send; a task that hands its block on can be run again, where scattered data would be lost with its worker."""
        return {place: self._sent(client, place, placing) for place in places}

    def _sent(self, client: Any, place: BlockPlace, placing: Placing) -> Any:
        options = {**placing.near(place), "priority": priority(place)}
        return client.submit(kept, self._read(place), pure=False, key=_key("a", place), **options)

    def _read(self, place: BlockPlace) -> NDArray[Any]:
        rows, cols = self._cut.rows(place.row), self._cut.rows(place.column)
        block = np.empty((len(rows), len(cols)), self._fmt.dtype)
        self._source.read_block(rows, cols, block)
        return block

    def fingerprint(self, client: Any, fmt: PrecisionFormat, devices: Devices) -> Fingerprint:
        """Read the sample here."""
        return fingerprint_of(self._source, fmt, ("host:0",))

    def diagonal(self, client: Any) -> Any:
        """Send the diagonal."""
        step, parts = 1 + self._cut.tiles.nb, []
        for start in range(0, self.n, step):
            span = range(start, min(start + step, self.n))
            block = np.empty((len(span), len(span)), self._fmt.dtype)
            self._source.read_block(span, span, block)
            parts.append(block.diagonal().copy())
        return client.submit(kept, np.concatenate(parts), pure=False)

    @property
    def sampled(self) -> AbstractSource:
        """The matrix that is sent."""
        return self._source

    def describe(self, row: int, col: int) -> str | None:
        return self._source.describe(row, col)

    def lost(self, row: int, col: int, dtype: np.dtype[Any]) -> str | None:
        return self._source.lost(row, col, dtype)


def _fingerprint_here(source: bytes, fmt: PrecisionFormat, devices: Devices) -> Fingerprint:
    """The fingerprint of what a worker reads, by its first device."""
    return fingerprint_of(unpacked(source), fmt, resolve_devices(devices))


def cluster_matrix(a: Any, lower: bool | None) -> AbstractClusterMatrix:
    """How tasks get ``a``: arrays of Dask by blocks, what can be opened anywhere by its pickle, all else from the client."""
    if is_dask_array(a):
        return DaskMatrix(a, lower)
    source = triangle_source(a, lower)
    return ReadMatrix(source) if source.is_shared else SentMatrix(source)


def _with_their_own_tasks(blocks: Sequence[Any]) -> list[Any]:
    """Blocks of one array without the tasks of all its others, by the same names: what is sent to the scheduler is their own."""
    graph = blocks[0].__dask_graph__().cull({block.key for block in blocks})
    (layer,) = graph.layers
    return [type(block)(block.key, graph, layer=layer) for block in blocks]


def _known_shape(a: Any) -> tuple[int, ...]:
    """The shape of an array of Dask; ``ValueError`` where Dask does not know it before it computes."""
    if any(size != size for size in a.shape):
        raise ValueError(f"the Dask array has the unknown shape {a.shape}: call its compute_chunk_sizes() first")
    return tuple(int(size) for size in a.shape)


def _key(what: str, place: BlockPlace) -> str:
    """A name for a task that no other one has."""
    from uuid import uuid4

    return f"ooc-{what}-{place.row}-{place.column}-{uuid4().hex}"
