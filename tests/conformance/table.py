"""All front doors."""

from __future__ import annotations

from tests.conformance import Door, dense, eigen, geostat, sparse, spectral, tensors

DOORS: list[Door] = [*dense.DOORS, *sparse.DOORS, *eigen.DOORS, *tensors.DOORS, *spectral.DOORS, *geostat.DOORS]
