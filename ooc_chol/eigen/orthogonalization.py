"""W made orthogonal to panels of a basis on devices, and orthonormal: Gram and Schmidt's, then Cholesky-QR twice."""

from __future__ import annotations

from typing import final

import numpy as np

from ooc_chol.eigen.device_group import DeviceGroup, OfDevice, own_basis, own_panel, own_w, w_alone
from ooc_chol.eigen.space_device import SpaceDevice
from ooc_chol.eigen.space_log import Kept, KeptFactors
from ooc_chol.interfaces import Tile
from ooc_chol.precision.triples import Precision

#: A pass of orthogonalization is done twice where a norm fell below this share.
_SHARE = 0.5
#: And once more with columns of norm 1 where the last pass did not leave this share of a norm, as it does unless it was given
#: roundoff; or where less than the second stands out of the columns before it.
_UNCHANGED, _LEAST = 0.9, 1 / 32
#: Pivots of a Gram matrix below so many roundoffs of computing, times columns, are noise: what is left of a column then is seen
#: once the column was divided by the root of that, in the second factor.
_NOISE = 64


@final
class Orthogonalizer:
    """Enqueues for all devices of a space; what it does is told of by :class:`~ooc_chol.eigen.device_space.DeviceSpace`."""

    def __init__(self, group: DeviceGroup, precision: Precision) -> None:
        self._group = group
        self._tolerance = _NOISE * group.block * float(np.finfo(precision.compute).eps)
        self._roundoff = float(np.finfo(precision.storage).eps)
        self.is_measured = False  #: Whether ``before`` holds what W's squared norms were
        self._last: OfDevice = _before  # where they are, as the last pass of a projection found them

    def project(self, panels: range, kept: Kept, *, again: bool) -> None:
        """``C = V[panels].T @ W; W -= V[panels] @ C``; ``before`` stays what W was before the first call since it changed."""
        if not panels:
            return
        block = self._group.block
        section, norms = self._group.sections(len(panels) * block, block)
        self._group.sum([section, norms], [own_basis(panels), w_alone], own_w)
        is_first, self.is_measured = not self.is_measured, True
        self._last = _after if again else _before if is_first else _now
        for each in self._group.all():
            self._group.add(each, section, each.log(*kept))
            self._group.add(each, norms, _before(each) if is_first else _now(each))
            each.kernels.subtract(each.computing, each.panels(panels), each.log(*kept), each.w)
        if again:
            [norms] = self._group.sections(block)
            self._group.sum([norms], [w_alone], own_w)
            for each in self._group.all():
                self._group.add(each, norms, _after(each))
                now = _before(each) if is_first else _now(each)
                each.kernels.fell(each.computing, now, _after(each), each.flags.fell, share=_SHARE)
            self._project_again(panels, lambda each: each.flags.fell, own_w, kept)

    def _project_again(self, panels: range, unless: OfDevice, w: OfDevice, kept: Kept | None = None) -> None:
        """W, or another panel, once more, unless a flag is 0; what is found is added to what is kept."""
        [section] = self._group.sections(len(panels) * self._group.block)
        self._group.sum([section], [own_basis(panels)], w, unless=unless)
        for each in self._group.all():
            second, flag = each.scratch(section.columns, self._group.block), unless(each)
            self._group.add(each, section, second, unless=flag)
            each.kernels.subtract(each.computing, each.panels(panels), second, w(each), unless=flag)
            if kept is not None:
                self._group.add(each, section, each.log(*kept), adds=True, unless=flag)

    def orthonormalize(self, panel: int, kept: KeptFactors, against: range, seed: int) -> None:
        """``W = V[panel] @ R``; columns that depend on others become random ones of this seed. W stays as it is."""
        first, second, third = kept.factors
        last = self._last if self.is_measured else _before
        made, alone = own_panel(panel), own_basis(range(panel, panel + 1))
        self._group.gram(w_alone, own_w, _gram)
        for each in self._group.all():
            small, flags, computing = each.small, each.flags, each.computing
            if not self.is_measured:
                each.copy(small.gram, small.before)
            each.kernels.factor_clamped(
                computing,
                small.gram,
                each.log(*first),
                small.first,
                flags.weak,
                tolerance=self._tolerance,
                before=last(each),
                share=_UNCHANGED,
                least=_LEAST,
                fell=flags.fell,
            )
            each.kernels.multiply_right(computing, each.w, small.first, made(each))
        if against:
            self._project_again(against, lambda each: each.flags.fell, made)
        self._group.gram(alone, made, _gram)
        for each in self._group.all():
            small, flags, computing = each.small, each.flags, each.computing
            each.kernels.factor(
                computing,
                small.gram,
                each.log(*second),
                small.inverse,
                flags.dependent,
                tolerance=self._tolerance,
                scale=each.log(*first),
                before=small.before,
                roundoff=self._roundoff,
                share=_UNCHANGED,
                weak=flags.weak,
            )
        self._mend_weak(made, alone, third, against, seed)
        for each in self._group.all():
            each.kernels.multiply_right(each.computing, made(each), each.small.inverse, made(each))
        self.is_measured = False

    def _mend_weak(self, made: OfDevice, alone: OfDevice, third: Kept, against: range, seed: int) -> None:
        """Where a column is weak: apply the second factor, make dependent columns random, and factor a third time."""
        for each in self._group.all():
            each.copy(each.small.zeros, each.log(*third))
            each.kernels.multiply_right(each.computing, made(each), each.small.inverse, made(each), unless=each.flags.weak)
            each.kernels.fill_random(each.computing, made(each), each.rows.start, seed, columns=each.flags.dependent)
        for _ in range(2 if against else 0):
            self._project_again(against, lambda each: each.flags.weak, made)
        self._group.gram(alone, made, _gram, unless=lambda each: each.flags.weak)
        for each in self._group.all():
            each.kernels.factor_clamped(
                each.computing,
                each.small.gram,
                each.log(*third),
                each.small.inverse,
                tolerance=self._tolerance,
                last=each.flags.dependent,
                unless=each.flags.weak,
            )


def _before(each: SpaceDevice) -> Tile:
    return each.small.before


def _now(each: SpaceDevice) -> Tile:
    return each.small.now


def _after(each: SpaceDevice) -> Tile:
    return each.small.after


def _gram(each: SpaceDevice) -> Tile:
    return each.small.gram
