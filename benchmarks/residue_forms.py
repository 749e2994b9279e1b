"""Strassen's products on planes of residues, in Winograd's form: shapes, and the CUDA C of their kernels. Needs no CuPy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ooc_chol.precision.moduli import ResidueBasis

#: Partial products of one level.
FACTORS = 7


@dataclass(frozen=True)
class Shape:
    """``S (+)= A B.T`` of ``planes`` planes: A of ``rows`` by ``inner``, B of ``columns`` by ``inner``."""

    planes: int
    rows: int
    columns: int
    inner: int

    def halves(self, levels: int) -> Shape:
        """The shape of the partial products."""
        return Shape(self.planes * FACTORS**levels, self.rows >> levels, self.columns >> levels, self.inner >> levels)

    @property
    def flops(self) -> float:
        """Flops of one FP64 product of this shape."""
        return 2.0 * self.rows * self.columns * self.inner


def source(basis: ResidueBasis) -> str:
    """The kernels of ``residue_forms.cu`` behind the tables of a basis."""
    moduli = basis.moduli
    lines = [f"#define PLANES {basis.count}"]
    for name, values in (("MODULUS", moduli), ("LOWEST", [-(m // 2) for m in moduli])):
        lines.append(f"__constant__ int {name}[PLANES] = {{{', '.join(map(str, values))}}};")
    return "\n".join(lines) + "\n\n" + Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
