"""The readers: for each a good file, what reads it, how it is mutated, and attacks that were written by hand."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import ooc_chol as oc
from benchmarks.call_table import call_columns, call_lines
from benchmarks.paper.tables import documented
from tests.fuzz import attacks, tables
from tests.fuzz.mutations import BLIND, TEXT, Mutator, json_changed, json_lines_changed
from tests.inside.dense import rates_problem
from tests.inside.kernels import machine_identity

#: Allocation that a case may take beside a multiple of its file: what readers and their libraries keep for themselves.
SLACK_BYTES = 128 << 20


@dataclass(frozen=True)
class Reader:
    """One kind of file.

    ``read`` returns what can be compared; with ``exact`` anything but the good file's is a wrong result in silence.
    """

    name: str
    file_name: str
    make: Callable[[Path], None]  #: Writes a good file
    read: Callable[[Path], Any]
    mutators: tuple[Mutator, ...]
    attacks: Callable[[bytes], Mapping[str, attacks.Attack]] = field(default=lambda good: {})
    exact: bool = False
    #: Bytes of memory that each byte of the file may take.
    factor: int = 64
    #: Whether it is a file that the package opens, so that it may be a FIFO or a device too.
    opens: bool = True


# matrices


def _write_matrix(path: Path) -> None:
    np.save(path, attacks.matrix(12))


def _factor(path: Path) -> None:
    with oc.cholesky(path, tile_size=8) as factor:
        assert factor.n >= 0


def _factor_mixed(path: Path) -> None:
    with oc.cholesky(path, 1e-3, tile_size=8) as factor:
        assert factor.n == 0 or factor.report.certified_bound is not None


# packed sparse matrices


def _write_packed(path: Path) -> None:
    oc.block_csr(csr_array(attacks.matrix(12)), store=path).close()


def _read_packed(path: Path) -> str:
    with oc.block_csr(path) as packed:
        return packed.info().partition("blocks")[2] + packed.tocsr().data.tobytes().hex()


# rates


def _write_rates(path: Path) -> None:
    kernels = dict.fromkeys(("potrf", "trsm", "syrk", "gemm", "generate", "invert", "trsm_float32", "gemm_float32"), 1e9)
    kinds = ("array-read", "memory-read", "memory-write", "file-read", "file-write", "array", "file", "memory")
    residue = {"moduli": 13} | dict.fromkeys(("product", "accumulate", "convert", "reconstruct", "pull"), 1e10)
    figures = {**kernels, "launch": 1e-6, "quick": True, "links": dict.fromkeys(kinds, 1e9), "residue": residue}
    path.write_text(dumps({machine_identity(): {"8": figures, "16": figures}}))


def _plan_with_rates(path: Path) -> None:
    """A file of rates is a cache: whatever it holds, plans are made."""
    os.environ["OOC_CHOL_CACHE"] = str(path.parent)
    rates_problem()
    for tile_size in (8, 12):
        assert str(oc.plan(40, tile_size=tile_size))


# traces


def _write_trace(path: Path) -> None:
    with oc.cholesky(attacks.matrix(24), tile_size=8, trace=True) as factor:
        assert factor.trace is not None
        factor.trace.save(path)


def _look_at_trace(path: Path) -> None:
    trace = oc.Trace.load(path)
    repr(trace), trace.summary()


# command lines

_FORMULA = b"log(zinc) ~ 1 + soil * x + sqrt(dist) + I(x**2/3) + poly(x, 2):factor(soil) - 0"


def _read_formula(path: Path) -> None:
    from ooc_chol.apps.geostat import parse_formula

    columns = {name: np.linspace(1.0, 2.0, 4) for name in ("zinc", "dist", "x")}
    formula = parse_formula(path.read_bytes().decode("utf-8", "replace"))
    columns["soil"] = np.array(["1", "2", "2", "1"])
    formula.values(columns), formula.names(formula.basis(columns)), formula.covariates(columns)


def _read_words(path: Path) -> None:
    """Sizes, counts and devices as people write them."""
    text = path.read_bytes().decode("utf-8", "replace")
    failures = []
    for parse in (_bytes, _count, _devices):
        try:
            parse(text)
        except ValueError as error:
            failures.append(error)
    if len(failures) == 3:
        raise failures[-1]


def _bytes(text: str) -> None:
    oc.plan(40, tile_size=8, memory_budget=text)


def _count(text: str) -> None:
    from tests.inside.ground import parse_count

    parse_count(text)


def _devices(text: str) -> None:
    oc.plan(40, tile_size=8, devices=text)


# results of measurements

_RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def _call_table(path: Path) -> None:
    lines = call_lines(path.parent)
    [[cell(line) for _, cell in call_columns("results")] for line in lines]


def _paper_table(path: Path) -> None:
    documented("likelihoods", path.parent)


def _writes(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def _copies(name: str) -> Callable[[Path], None]:
    return lambda path: path.write_bytes((_RESULTS / name).read_bytes()) and None


@functools.cache
def readers() -> tuple[Reader, ...]:
    """All of them, each of its own name."""
    json = (*BLIND, *TEXT, *[json_changed] * 12)
    npy = (*BLIND, *attacks.NPY_MUTATORS)
    return (
        Reader("npy", "a.npy", _write_matrix, _factor, npy, attacks.of_npy),
        Reader("npy-mixed", "a.npy", _write_matrix, _factor_mixed, npy),
        Reader("packed", "a.oocsr", _write_packed, _read_packed, BLIND, exact=True),
        Reader("rates", "rates.json", _write_rates, _plan_with_rates, json, attacks.of_json),
        Reader("trace", "a.pftrace", _write_trace, _look_at_trace, (*BLIND, *attacks.TRACE_MUTATORS), attacks.of_trace),
        Reader("trace-gz", "a.pftrace.gz", _write_trace, _look_at_trace, attacks.GZIP_MUTATORS, attacks.of_gzip, factor=1100),
        Reader("formula", "formula.txt", _writes(_FORMULA), _read_formula, (*BLIND, *TEXT),
               attacks.of_formula, opens=False),
        Reader("words", "words.txt", _writes(b"16 GiB"), _read_words, (*BLIND, *TEXT), attacks.of_words,
               opens=False),
        Reader("calls", "h200-cupy.json", _copies("wall/h200-cupy.json"), _call_table, json, attacks.of_json),
        Reader("paper", "host-kl-8192.json", _copies("paper/host-kl-8192.json"), _paper_table, json, attacks.of_json),
        *(Reader(*one) for one in tables.readers(json_changed, json_lines_changed)),
    )  # fmt: skip


def named(name: str) -> Reader:
    """The reader of that name."""
    return next(reader for reader in readers() if reader.name == name)


def random_of(seed: int, reader: Reader, number: int) -> Random:
    """The source of chance of one case."""
    return Random(f"{seed} {reader.name} {number}")
