"""The numbers of a residue basis as CUDA C, and the kernels behind them. Needs no CuPy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ooc_chol.formats import FP64, PrecisionFormat
from ooc_chol.kernels.cuda.modules import code
from ooc_chol.precision.moduli import MOST_MODULI, ROW_SLACK, ResidueBasis

#: Threads of a block.
THREADS = 128
#: Adjacent columns that a thread converts at once: one word of each plane.
CONVERT_COLUMNS = 4
#: Columns that a thread reconstructs, which share the loads of the tables.
RECONSTRUCT_COLUMNS = 2
#: Bits of the float 1.5 * 2**23: an int added to them adds to the number.
MAGIC_BITS = 0x4B400000
#: Of the products that reduce in registers (residue_products.cu): rows and columns that a thread block multiplies at once, bytes
#: of K of a stage, stages, threads, bytes of shared memory, rows of blocks whose columns follow each other, and the architecture.
BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_DEPTH = 128, 256, 128
_STAGES, PRODUCTS_THREADS = 4, 128 + 2 * BLOCK_ROWS
PRODUCTS_SHARED_BYTES = (
    _STAGES * (BLOCK_ROWS + BLOCK_COLUMNS) * BLOCK_DEPTH + BLOCK_ROWS * BLOCK_COLUMNS + 8 * (2 * _STAGES + 2) + 1024
)
_GROUP, PRODUCTS_ARCHITECTURE = 16, "sm_90a"
#: Of products by FP8 digits (residue_fp8.cu): order of the tile that a thread block multiplies, and its threads.
FP8_TILE, FP8_THREADS = 64, 128
_WORD = 1 << 64
#: What CUDA C calls an entry of a tile by its format: its type, and of a real one what reads it.
_ENTRIES = {
    "fp64": ("double", "#define ENTRIES Fp64"),
    "fp32": ("float", "#define ENTRIES Fp32"),
    "complex128": ("double2", ""),
    "complex64": ("float2", ""),
}


def source(basis: ResidueBasis, fmt: PrecisionFormat = FP64) -> str:
    """CUDA C of the kernels for one basis and tiles of one format: tables, what all kernels share, and the kernels."""
    kernels = ("residue_numbers.cu", "residues_complex.cu" if fmt.is_complex else "residues.cu")
    entry, beside = _ENTRIES[fmt.name]
    return "\n".join([tables(basis), f"#define ENTRY {entry}", beside, "", code(*kernels)])


def products_source() -> str:
    """CUDA C of the products that reduce in registers, for every basis and :data:`PRODUCTS_ARCHITECTURE`."""
    sizes = {"STAGES": _STAGES, "THREADS": PRODUCTS_THREADS, "GROUP": _GROUP, "SHARED_BYTES": PRODUCTS_SHARED_BYTES}
    return code("residue_hopper.cu", "residue_products.cu", MOST_MODULI=MOST_MODULI, **sizes)


def fp8_source() -> str:
    """CUDA C of the products by FP8 digits, for every basis and :data:`PRODUCTS_ARCHITECTURE`."""
    return code("residue_hopper.cu", "residue_fp8.cu", MOST_MODULI=MOST_MODULI, TILE=FP8_TILE, THREADS=FP8_THREADS)


def divisions(moduli: Sequence[int]) -> NDArray[np.int32]:
    """For each modulus what those products reduce by: itself, bytes of powers of 256, a bias, and the bits of its reciprocal."""
    numbers = np.zeros((MOST_MODULI, 4), dtype=np.int32)
    for at, p in enumerate(moduli):
        numbers[at, :3] = p, int(_bytes(p, 0)), MAGIC_BITS - 2**31 % p
        numbers[at, 3:] = np.array([1 / p], dtype=np.float32).view(np.int32)
    return numbers


def tables(basis: ResidueBasis) -> str:
    """Macros and ``__constant__`` tables by modulus, which the kernels take from their basis."""
    moduli = basis.moduli
    mantissa, power = basis.limit
    lines = [
        f"#define THREADS {THREADS}",
        f"#define CONVERT_COLUMNS {CONVERT_COLUMNS}",
        f"#define RECONSTRUCT_COLUMNS {RECONSTRUCT_COLUMNS}",
        f"#define MODULI {basis.count}",
        f"#define LIMIT_MANTISSA {mantissa.hex()}",
        f"#define LIMIT_POWER {power}",
        f"#define FP16_SHIFT ({basis.fp16_exponent(0)})",
        f"#define ROW_SLACK {ROW_SLACK.hex()}",
        f"#define PRODUCT_HIGH {_word(basis.product >> 64)}",
        f"#define PRODUCT_LOW {_word(basis.product)}",
        *(f"#define SHARE{digit} {(2 ** (32 * digit) / basis.product).hex()}" for digit in range(4)),
        _table("int", "MODULUS", map(str, moduli)),
        _table("float", "RECIPROCAL", (f"{float(np.float32(1 / m)).hex()}f" for m in moduli)),
        _table("int", "LOW_BYTES", (_bytes(m, 0) for m in moduli)),
        _table("int", "HIGH_BYTES", (_bytes(m, 4) for m in moduli)),
        _table("int", "OFFSET32", (str((1 << 31) % m) for m in moduli)),
        _table("int", "OFFSET64", (str((1 << 63) % m) for m in moduli)),
        *_weights(basis),
    ]
    return "\n".join(lines) + "\n"


def _weights(basis: ResidueBasis) -> list[str]:
    """The digits of the weights of reconstruction; of split moduli those of both parts, and the roots of -1."""
    if not basis.is_split:
        return _digits("WEIGHT", basis.weights)
    of_real, of_imaginary = basis.part_weights
    return [_table("int", "ROOT", map(str, basis.roots)), *_digits("REAL", of_real), *_digits("IMAG", of_imaginary)]


def _digits(name: str, weights: Sequence[int]) -> list[str]:
    return [_table("double", f"{name}{digit}", (_digit(weight, digit) for weight in weights)) for digit in range(4)]


def _table(kind: str, name: str, values: Iterable[str]) -> str:
    return f"__constant__ {kind} {name}[MODULI] = {{{', '.join(values)}}};"


def _word(number: int) -> str:
    """The low 64 bits as an unsigned literal."""
    return f"{number % _WORD:#x}ull"


def _digit(number: int, digit: int) -> str:
    """A digit of 32 bits as a double."""
    return float((number >> (32 * digit)) % (1 << 32)).hex()


def _bytes(modulus: int, first: int) -> str:
    """``256**k mod m`` for four ``k`` from ``first``, canonical, as the signed bytes of one int."""
    packed = 0
    for k in range(4):
        half = modulus // 2
        digit = (pow(256, first + k, modulus) + half) % modulus - half
        packed |= (digit % 256) << (8 * k)
    return str(packed - (1 << 32) if packed >> 31 else packed)
