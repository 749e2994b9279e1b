"""Nominal rates: what a GPU that nobody measured should do, so that plans can choose and predict from the first call on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil

from ooc_chol.dense.programs.cost import Rates, RatesOrigin, ResidueRates
from ooc_chol.dense.rates.gpus import DATA_SHEETS, Ceilings, ceilings_of
from ooc_chol.dense.rates.stored import COPIED_SHARE
from ooc_chol.hardware.gpu_facts import GpuFacts
from ooc_chol.hardware.registry import device_kind
from ooc_chol.kernels.cuda import FOLDING_CAPABILITY, SYRK_PARTS, TRSM_BLOCK

#: What our kernels reach on an H200; its rates are scaled to other GPUs by ceilings. Measured: DGEMM 52 TFLOP/s under load,
#: products of long K at 13 moduli 103 to 107, passes over accumulators 24 ps an entry, reconstruction 27, both less where
#: products reduce in registers, conversion 8.5 (docs/lab-notes.md), copies both ways at once 51 GB/s, 96 GB/s for four GPUs
#: together, whose limit is the host's memory, and 363 GB/s between GPUs; POTRF 2.05 ms at order 2048 and 5.7 at 4096, TRSM 1.2 ms
#: at 2048, inversion 0.02 ms (docs/lab-notes.md). Products in FP16 and passes over float32 accumulators are estimates.
_H200 = DATA_SHEETS["NVIDIA H200"]
_GEMM, _SYRK_SHARE = 52e12, 0.95
_PRODUCT, _MODULI = 107e12, 13
_HALF = 5e14
#: Least rows of a tile for which products through residues have that rate (kernels/cuda/int8_choice.py), and its share below.
_PRODUCT_ROWS, _SMALL_PRODUCT_SHARE = 1024, 0.76
_FOLDING_ACCUMULATE, _FOLDING_RECONSTRUCT = 1 / 14e-12, 1 / 24e-12
_ACCUMULATE, _NARROW_ACCUMULATE, _CONVERT, _RECONSTRUCT = 1 / 24e-12, 5.5e11, 1 / 8.5e-12, 1 / 27e-12
_INVERT, _CHECK = 2.1e11, 5e11
_LINK, _PULL, _HOST_MEMORY = 51e9, 363e9, 96e9
#: POTRF: seconds for each row, in which few processors work, and flops per second besides.
_POTRF_ROW_SECONDS, _POTRF = 0.87e-6, 10.7e12
#: TRSM: flops per second of one multiprocessor, which has a strip of rows.
_TRSM_STRIP = 2.25e11
#: Entries per second of a covariance function; others take another time, which a plan learns once rates are measured.
_GENERATE = 4.8e10
#: Seconds between two operations of one stream.
_LAUNCH = 5e-6
#: Order of what one multiprocessor computes of a product at least: smaller products leave some of them idle.
_PRODUCT_BLOCK = 64
#: Bytes per second of one thread that copies between page-locked memory and a file in the page cache: an assumption, as all of
#: storage is.
_FILE_READ, _FILE_WRITE = 4e9, 2e9


def nominal_rates(names: Sequence[str], nb: int, source: str, store: str) -> Rates | None:
    """Rates of GPUs that are here, at tile order ``nb``, for a kind of source and of store.

    None for the host, for models that differ, for a GPU of which nothing is known, and for a source of unknown speed.
    """
    facts = {device_kind(name).gpu_facts(name) for name in names}
    (found, *others) = facts
    if found is None or others or source == "slices":
        return None
    return nominal_rates_of(found, len(names), nb, source, store)


@cache
def nominal_rates_of(facts: GpuFacts, n_devices: int, nb: int, source: str, store: str) -> Rates | None:
    """As :func:`nominal_rates`, of so many GPUs that a driver describes; they need not be here."""
    ceilings = ceilings_of(facts)
    if ceilings is None:
        return None
    gemm = _GEMM * ceilings.fp64 / _H200.fp64
    in_memory = min(_LINK * ceilings.link / _H200.link, _HOST_MEMORY * ceilings.link / _H200.link / n_devices)
    fetch, write = (min(in_memory, _FILE_READ), min(in_memory, _FILE_WRITE)) if store == "file" else (in_memory, in_memory)
    check = _CHECK * ceilings.memory / _H200.memory
    return Rates(
        tile_size=nb,
        potrf=_potrf(nb, ceilings),
        trsm=_TRSM_STRIP * ceilings.fp64 / _H200.fp64 * min(ceil(nb / TRSM_BLOCK), ceilings.processors),
        syrk=_SYRK_SHARE * gemm * _busy_share(nb / SYRK_PARTS * nb * (SYRK_PARTS + 1) / (2 * SYRK_PARTS), ceilings),
        gemm=gemm * _busy_share(nb * nb, ceilings),
        source=min(in_memory, _FILE_READ) if source == "file" else in_memory,
        fetch=fetch,
        write=write,
        memory_fetch=in_memory,
        memory_write=in_memory,
        generate=COPIED_SHARE * check if source == "device-array" else min(check, _GENERATE * ceilings.fp64 / _H200.fp64),
        launch=_LAUNCH,
        residue=_residue_rates(ceilings, nb, in_memory, folds=facts.capability == FOLDING_CAPABILITY),
        invert=_INVERT * ceilings.fp64 / _H200.fp64,
        origin=RatesOrigin.NOMINAL,
        model=facts.model,
    )


def _residue_rates(ceilings: Ceilings, nb: int, link: float, *, folds: bool) -> ResidueRates:
    """Products by their tensor cores, passes over residues by the memory."""
    memory, fp16 = ceilings.memory / _H200.memory, ceilings.fp16 / _H200.fp16
    return ResidueRates(
        moduli=_MODULI,
        product=_PRODUCT * ceilings.int8 / _H200.int8 * (1.0 if nb >= _PRODUCT_ROWS else _SMALL_PRODUCT_SHARE),
        accumulate=(_FOLDING_ACCUMULATE if folds else _ACCUMULATE) * memory,
        convert=_CONVERT * memory,
        reconstruct=(_FOLDING_RECONSTRUCT if folds else _RECONSTRUCT) * memory,
        pull=link if ceilings.peer is None or _H200.peer is None else _PULL * ceilings.peer / _H200.peer,
        half=_HALF * fp16,
        half_accumulate=_NARROW_ACCUMULATE * memory,
    )


def _potrf(nb: int, ceilings: Ceilings) -> float:
    """Flops per second of POTRF: a chain of small blocks, beside which the others update."""
    flops = nb**3 / 3
    return flops / (_POTRF_ROW_SECONDS * nb + flops / (_POTRF * ceilings.fp64 / _H200.fp64))


def _busy_share(entries: float, ceilings: Ceilings) -> float:
    """Share of the multiprocessors that a product of so many entries keeps busy."""
    return min(1.0, entries / (_PRODUCT_BLOCK**2 * ceilings.processors))
