"""A factor as it is stored: its tiles, what is told of it, entries of it, arrays of it, and the file it is saved to."""

from __future__ import annotations

import json
import math
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ooc_chol.config import whole_number
from ooc_chol.dense.factor.device_sweeps import DeviceSolver
from ooc_chol.dense.factor.habits import AbstractFactor, SignAndLogdet
from ooc_chol.dense.factor.picture import factor_picture
from ooc_chol.dense.factor.places import AbstractPlace, LocalPlace
from ooc_chol.dense.factor.reading import stream_tiles
from ooc_chol.dense.factor.resident import dense_on_device
from ooc_chol.dense.factor.saving import check_target, is_array_name, save_array, save_tiles
from ooc_chol.dense.stores.base import AbstractStore
from ooc_chol.dense.stores.kept import AbstractKeptStore
from ooc_chol.display.drawing import notebook_html
from ooc_chol.errors import ClosedError
from ooc_chol.formats import FORMATS, FP64
from ooc_chol.precision.certified_answers import CertifiedAnswers, CertifiedSignAndLogdet, CertifiedValue
from ooc_chol.process import blas_buffers
from ooc_chol.process.closing import AbstractClosing
from ooc_chol.process.forks import refuse_in_child
from ooc_chol.runtime.passes import Passes
from ooc_chol.tasks.tiling import TileGrid
from ooc_chol.tracing.trace import Trace

if TYPE_CHECKING:
    from ooc_chol.dense.planner.plan import Plan
    from ooc_chol.dense.report import FactorReport

#: None where there is nothing to tell, which a type checker need not be shown at every use: typeshed's word and way.
MaybeNone: TypeAlias = Any


class AbstractStoredFactor(AbstractFactor, AbstractClosing):
    """Stored state of a factor, whatever is computed with it; the parameters are those of :class:`~ooc_chol.CholeskyFactor`."""

    def __init__(
        self,
        grid: TileGrid,
        store: AbstractStore,
        arithmetic_key: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        report: FactorReport | Callable[[], FactorReport] | None = None,
        *,
        trace: Trace | None = None,
        passes: Passes | None = None,
        a: Any = None,
        solver: DeviceSolver | AbstractPlace | None = None,
        files: Sequence[str | os.PathLike[str]] | Callable[[], Sequence[str]] = (),
        lower: bool | None = True,
    ) -> None:
        self.grid = grid
        self._report: FactorReport | Callable[[], FactorReport] | None = report
        self._trace = trace
        self._passes: Passes = passes or (Passes() if report is None or callable(report) else report.passes)
        self._key = arithmetic_key if callable(arithmetic_key) else _as_in_a_file(arithmetic_key)
        #: Number of tiles of each format that L has, by name, the widest first.
        self.formats: dict[str, int] = _tiles_by_format(store)
        self._store: AbstractStore | None = store
        self._process = os.getpid()
        self._fmt = store.fmt
        self._a = a
        self._lower = lower
        self._place = solver if isinstance(solver, AbstractPlace) else LocalPlace(solver)
        self._files = files if callable(files) else tuple(files)
        self._diagonal: NDArray[Any] | None = None
        self._dense: Any = None
        self._handed_over: Any = None
        #: One item for each factor that has this store open, copies of this one: the last to close closes it.
        self._holders: list[None] = [None]
        #: Whether the first solve is still to look whether A is ill-conditioned.
        self._is_condition_open = report is not None and store.formats is None

    @property
    def arithmetic_key(self) -> dict[str, Any]:
        """Everything that the bits of L depend on, as it comes back from a file: lists for tuples, strings for keys."""
        if callable(self._key):
            self._key = _as_in_a_file(self._key())
        return self._key

    @property
    def report(self) -> FactorReport | MaybeNone:
        """The :class:`~ooc_chol.toolbox.FactorReport` of the run that made L; None for a loaded factor."""
        if callable(self._report):
            self._report = self._report()
        return self._report

    @property
    def plan(self) -> Plan | MaybeNone:
        """The :class:`~ooc_chol.Plan` that the run followed, ``report.plan``; None for a loaded factor."""
        return None if self.report is None else self.report.plan

    @property
    def trace(self) -> Trace | MaybeNone:
        """The :class:`~ooc_chol.Trace`: every operation of the factorization, and of passes over A and L until now.

        ``records`` are the factorization's. ``passes`` are the pass over A for its norms, the certificate, solves, sums over the
        inverse and products with L. None where no trace was asked for.
        """
        if self._trace is None or not (records := self._passes.records):
            return self._trace
        return replace(self._trace, passes=records)

    @property
    def n(self) -> int:
        """Order of the matrix."""
        return self.grid.n

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of L, ``(n, n)``."""
        return self.grid.n, self.grid.n

    @property
    def tile_size(self) -> int:
        """Order of a tile."""
        return self.grid.nb

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of L and of solutions: float64 unless ``cholesky`` was asked for another, whatever formats tiles have."""
        return self._fmt.dtype

    def _known_files(self) -> Sequence[str | os.PathLike[str]]:
        """Files into which the factor is never saved."""
        return self._files() if callable(self._files) else self._files

    def diagonal(self) -> NDArray[Any]:
        """The diagonal of L.

        Returns
        -------
        (n,) array
            The entries ``L_ii``, all real and positive, as a new array.

        Raises
        ------
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        The first call reads the diagonal tiles, ``8 n nb`` bytes; later ones read nothing.
        """
        store = self._opened()
        if self._diagonal is None:
            self._diagonal = self._place.diagonal(store)  # once it is whole: other threads may ask, and a read may fail
        return self._diagonal.copy()

    @overload
    def logdet(self, *, certified: Literal[False] = False, a: Any = None) -> float: ...

    @overload
    def logdet(self, *, certified: Literal[True], a: Any = None) -> CertifiedValue: ...

    def logdet(self, *, certified: bool = False, a: Any = None) -> float | CertifiedValue:
        """Logarithm of the determinant of A, ``2 sum(log(L_ii))``.

        Parameters
        ----------
        certified : bool
            Give an interval that holds what A itself has, whatever the precision of L.
        a : array, path, object, optional
            The matrix for that, as for :meth:`certify`, which says what an interval costs.

        Returns
        -------
        float or CertifiedValue
            The natural logarithm; with ``certified`` its interval, too.

        Raises
        ------
        TierError
            L cannot be read, or the factor is closed; with ``certified`` also what :meth:`certify` raises.
        """
        if certified:
            return self.certify(a=a).logdet
        return 2.0 * math.fsum(np.log(self.diagonal().astype(np.float64, copy=False)))

    @overload
    def slogdet(self, *, certified: Literal[False] = False, a: Any = None) -> SignAndLogdet: ...

    @overload
    def slogdet(self, *, certified: Literal[True], a: Any = None) -> CertifiedSignAndLogdet: ...

    def slogdet(self, *, certified: bool = False, a: Any = None) -> SignAndLogdet | CertifiedSignAndLogdet:
        """Sign and logarithm of the determinant of A, as ``numpy.linalg.slogdet(A)``.

        Parameters
        ----------
        certified : bool
            Give the sign where it is certain, and the interval of the logarithm.
        a : array, path, object, optional
            The matrix for that, as for :meth:`certify`, which says what an interval costs.

        Returns
        -------
        SignAndLogdet or CertifiedSignAndLogdet
            ``sign``, which is 1, and ``logabsdet``, as :meth:`logdet`; with ``certified`` the sign is NaN where the factor is so
            far from A that A may have another.

        Raises
        ------
        TierError
            L cannot be read, or the factor is closed; with ``certified`` also what :meth:`certify` raises.
        """
        if certified:
            return CertifiedSignAndLogdet.of(self.logdet(certified=True, a=a))
        return SignAndLogdet(1.0, self.logdet())

    @abstractmethod
    def certify(self, b: ArrayLike | None = None, *, a: Any = None, confidence: float = ...) -> CertifiedAnswers:
        """Certify the log-determinant, and quadratic forms and solutions of right-hand sides."""

    def rows(self, rows: range, stop: int) -> NDArray[Any]:
        """Read the entries ``L[rows, :stop]``.

        Parameters
        ----------
        rows : range
            Rows of L, step 1.
        stop : int
            How many columns to read, from the first on.

        Returns
        -------
        (len(rows), stop) array
            A new array; zero above the diagonal.

        Raises
        ------
        ValueError
            The rows or columns leave the matrix.
        TierError
            L cannot be read, or the factor is closed.

        Notes
        -----
        Reads these rows of each tile only, so that a sample of a factor in a file does not read all of it.
        """
        store = self._opened()
        if not isinstance(rows, range):
            raise TypeError(f"rows is a {type(rows).__name__}; give a range")
        if rows.step != 1 or rows.start < 0 or whole_number(stop, "stop") < 0 or max(rows.stop, stop) > self.n:
            raise ValueError(f"L[{rows.start}:{rows.stop}:{rows.step}, :{stop}] is not inside a factor of shape {self.shape}")
        out = np.zeros((len(rows), stop), self.dtype)
        for i in range(rows.start // self.grid.nb, -(-rows.stop // self.grid.nb) if rows else 0):
            span = self.grid.span(i)
            part = range(max(rows.start, span.start), min(rows.stop, span.stop))
            target = out[part.start - rows.start : part.stop - rows.start]
            self._read_row_part(store, i, range(part.start - span.start, part.stop - span.start), target)
        return out

    def _read_row_part(self, store: AbstractStore, i: int, rows: range, target: NDArray[Any]) -> None:
        """Fill ``target`` with rows ``rows`` of tile row ``i`` from column 0 on, as far as both reach."""
        for j in range(min(i + 1, -(-target.shape[1] // self.grid.nb))):
            piece = np.empty((len(rows), self.grid.size(j)), self.dtype)
            store.read_rows((i, j), rows, piece)
            columns = target[:, self.grid.start(j) :][:, : piece.shape[1]]
            columns[...] = piece[:, : columns.shape[1]]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """L as a dense ``(n, n)`` array, zero above the diagonal; needs ``8 n**2`` bytes in float64."""
        store = self._opened()
        if copy is False:
            raise ValueError("a factor is stored in tiles, so that a dense array of it is always a copy; ask without copy=False")
        if self.grid.nt == 1 and dtype in (None, self.dtype):
            store.read((0, 0), tile := np.empty(self.shape, self.dtype))
            return tile
        dense = np.zeros(self.shape, dtype=self.dtype if dtype is None else dtype)
        with closing(stream_tiles(store, list(self.grid.tiles()))) as tiles:
            for (i, j), l_ij in tiles:
                dense[self.grid.start(i) :, self.grid.start(j) :][: l_ij.shape[0], : l_ij.shape[1]] = l_ij
        return dense

    def _on_device(self) -> Any:
        """L as a dense array of the GPU that it lies on, the first of several: its one tile itself, else a copy that is kept."""
        if self._dense is None:
            self._dense = dense_on_device(self._opened())
        return self._dense

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """L as a dense ``(n, n)`` array on the GPU where it lies, for ``cupy.asarray(L)``: its memory lasts as long as that."""
        if self._store is None or not self._store.devices:
            raise AttributeError("L is not in a GPU's memory: np.asarray(L) copies it, and store='device' keeps it there")
        self._handed_over = self._on_device()  # who takes it keeps this factor, closed or not
        interface: dict[str, Any] = self._handed_over.__cuda_array_interface__
        return interface

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where :meth:`__dlpack__` hands L over: on the GPU where it lies, else in host memory."""
        if self._opened().devices:
            device: tuple[int, int] = self._on_device().__dlpack_device__()
            return device
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        """L as a dense ``(n, n)`` array, zero above the diagonal, for ``from_dlpack`` of any library."""
        array = self._on_device() if self._opened().devices else np.asarray(self)
        return array.__dlpack__(**options)

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Write the factor to a file that :func:`load` reads, or L as a dense array to a ``.npy`` file that ``numpy.load`` reads.

        Parameters
        ----------
        path : path or str
            File to create, of any name that promises no other format; by custom it ends in ``.ooc``. One that ends in ``.npy`` is
            an array of shape ``(n, n)``, zero above the diagonal. A factor of that name is replaced, an array only if asked, and
            only once the new file is complete and on the disk. One that ends in ``.zarr``, or a URL, is that of a Zarr group; an
            earlier one is removed first, and only if asked.
        replace : bool
            Replace any other file, too, and one that another factor has open, which goes on reading what it opened.

        Raises
        ------
        TierError
            The file cannot be written, L cannot be read, or the factor is closed. As ``OutputError``: it is the file of the
            matrix that was factored, or that of another open factor, or it exists and is no factor. As ``MissingFolderError``:
            there is no folder for it.
        ValueError
            The name promises a format that L is not written in, such as ``.npz`` or ``.csv``.

        Notes
        -----
        Tile by tile through two tiles of memory, from any store, and every tile keeps its format. An array takes 8 n² bytes on
        the disk, and some 32 MiB of its rows are in memory at once.
        """
        store = self._opened()
        check_target(store, path, self._known_files(), replace=replace)
        if is_array_name(path):
            save_array(lambda rows: self.rows(rows, self.n), self.n, self.dtype, path, replace=replace)
        else:
            save_tiles(store, path, self.arithmetic_key, replace=replace)

    @property
    def closed(self) -> bool:
        """True if :meth:`close` was called: then L cannot be used, and what tries raises ``ClosedError``."""
        return self._store is None

    def close(self) -> None:
        """Release the store of L, unless a copy of this factor is open; a second call does nothing.

        ``report`` and ``trace`` stay, and :attr:`closed` is true.
        """
        store, self._store, self._dense = self._store, None, None
        if store is not None:
            self._holders.pop()
            if not self._holders:
                store.close()

    def __copy__(self) -> Self:
        """A factor over the same tiles, which never change: each of the two is closed by itself."""
        self._opened()
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        self._holders.append(None)
        return twin

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __repr__(self) -> str:
        where = "closed" if self._store is None else f"store={self._store.name!r}"
        kind = "" if list(self.formats) == [FP64.name] else f", formats={self.formats}"
        if self._fmt != FP64:
            kind = f", dtype={self.dtype.name!r}"
        return f"CholeskyFactor(n={self.n}, tile_size={self.tile_size}, {where}{kind})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the tiles of L in the colours of their formats, and where it is."""
        store = self._store
        where = None if store is None else f"{store.name} {store.path}" if isinstance(store, AbstractKeptStore) else store.name
        formats = None if store is None else store.formats
        return notebook_html(repr(self), factor_picture(self.grid, formats, self.formats, where))

    def _opened(self) -> AbstractStore:
        if self._store is None:
            raise ClosedError("this factor is closed; use it before its with block ends, or save it and load the file")
        if self._store.devices:
            refuse_in_child(self._process, "a factor in the memory of a GPU (store='host' keeps it out of there)")
        blas_buffers.ensure(numpys=True)  # nearly all that is asked of a factor calls BLAS on the thread that asks
        return self._store


def _as_in_a_file(arithmetic_key: Mapping[str, Any]) -> dict[str, Any]:
    """The key as a factor that is loaded has it."""
    key: dict[str, Any] = json.loads(json.dumps(dict(arithmetic_key), allow_nan=False))
    return key


def _tiles_by_format(store: AbstractStore) -> dict[str, int]:
    """Number of tiles of each format in use."""
    if store.formats is None:
        return {store.fmt.name: store.grid.n_tiles}
    counts = Counter(fmt.name for fmt in store.formats)
    return {name: counts[name] for name in FORMATS if counts[name]}
