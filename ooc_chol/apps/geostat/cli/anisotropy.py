"""``plot anisotropy``: the ellipse of a fitted model over the variogram map of its data, and semivariograms along its axes."""

from __future__ import annotations

import argparse

from ooc_chol.apps.geostat.cli.messages import note
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance
from ooc_chol.apps.geostat.covariances.planar import directional_range, is_directional
from ooc_chol.apps.geostat.data.dataset import Dataset
from ooc_chol.apps.geostat.pictures.anisotropy import anisotropy_figure, variograms_along_axes
from ooc_chol.apps.geostat.pictures.labels import FigureWords
from ooc_chol.apps.geostat.pictures.plots import save_figure
from ooc_chol.apps.geostat.variography.maps import variogram_map


def check_anisotropy(model: AbstractCovariance) -> None:
    """Find out early whether a model has directions in the plane."""
    if not is_directional(model):
        raise ValueError(
            f"a {type(model).__name__} has no directions in the plane; fit one with --covariance anisotropic, and look at the "
            "data with `variogram --map`"
        )


def draw_anisotropy(dataset: Dataset, model: AbstractCovariance, options: argparse.Namespace) -> None:
    """Draw the picture, and say how far the model reaches."""
    observations, spec = dataset.observations, dataset.spec
    found = variogram_map(observations, longest=options.longest, seed=options.seed)
    curves = variograms_along_axes(
        observations,
        model,
        estimator=options.estimator,
        bins=options.bins,
        longest=options.longest,
        max_sites=options.max_sites,
        seed=options.seed,
    )
    for text in dict.fromkeys((*found.notes, *curves[0].notes)):
        note(text)
    words = FigureWords(
        f"{spec.value_name}: semivariances of the residuals of the mean", spec.unit, spec.value_name, spec.value_unit
    )
    x, y = spec.coordinates[:2]
    save_figure(anisotropy_figure(found, curves, model, words, axes=(x, y)), options.output, replace=options.force)
    azimuths = [curve.direction.azimuth for curve in curves if curve.direction is not None]
    unit = f" {spec.unit}" if spec.unit else ""
    along, across = (f"{directional_range(model, one):.6g}{unit} at azimuth {one:.4g}" for one in azimuths)
    print(f"effective range (correlation 0.05) {along}, {across} (degrees clockwise from north)")
