"""Units of the parameters of a covariance function, as far as the file of the data tells them."""

from __future__ import annotations

from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.data.dataset import Dataset


def parameter_units(dataset: Dataset, model: AbstractCovariance) -> dict[str, str]:
    """Units of lengths in space and in time, by name; without those that nobody told."""
    spec = dataset.spec
    found: dict[str, str] = {}
    for name, scale in model.scales(dataset.observations.coordinates).items():
        if not scale.is_length:
            continue
        is_time = name.startswith("time_") or (spec.time is not None and name == f"range_{len(spec.coordinates) + 1}")
        unit = spec.units.get(spec.time or "", "") if is_time else spec.unit
        found |= {name: unit} if unit else {}
    return found
