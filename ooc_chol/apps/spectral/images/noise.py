"""Noise of the features of an image: how much there is, and features without it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps.spectral.images.features import Features

#: Median of the absolute values of normal deviates of variance 1.
_MEDIAN = 0.6745
#: Standard deviation that second differences along rows and columns give to noise of 1: the norm of [1, -2, 1] twice.
_GROWTH = 6.0
#: Weight of the total variation, in units of the noise: areas become flat, and edges of a few times the noise stay.
_WEIGHT = 1.5
#: Steps of the accelerated projection: values are then right to some percent of the noise.
_STEPS = 100


def noise_of(features: Features) -> NDArray[np.float64]:
    """Standard deviation of the noise of each feature, (f,), by the median of second differences; slopes and edges have none."""
    seen = np.where(features.keep[:, :, None], features.values, np.nan)
    if min(seen.shape[:2]) < 3:
        return np.zeros(seen.shape[2])
    differences = np.abs(np.diff(np.diff(seen, 2, axis=0), 2, axis=1)).reshape(-1, seen.shape[2])
    differences = differences[np.isfinite(differences).all(axis=1)]
    if not len(differences):
        return np.zeros(seen.shape[2])
    return np.asarray(np.median(differences, axis=0) / (_MEDIAN * _GROWTH))


def smoothed(features: Features, noise: NDArray[np.float64]) -> Features:
    """The features of least total variation near those of an image, each as near as its noise says."""
    planes = [_least_variation(features.values[:, :, i], features.keep, _WEIGHT * of_it) for i, of_it in enumerate(noise)]
    return features._replace(values=np.stack(planes, axis=2))


def _least_variation(values: NDArray[np.float64], keep: NDArray[np.bool_], weight: float) -> NDArray[np.float64]:
    """The minimizer of ``|x - values|^2 / 2 + weight TV(x)`` over the pixels that are kept.

    Projected gradients on the dual, accelerated (Beck and Teboulle, 2009): ``_STEPS`` steps of some 20 operations a pixel.
    """
    if not weight:
        return values
    are_both_kept = np.zeros((2, *values.shape), np.bool_)
    are_both_kept[0, :-1], are_both_kept[1, :, :-1] = keep[:-1] & keep[1:], keep[:, :-1] & keep[:, 1:]
    dual = np.zeros((2, *values.shape))
    ahead, pace = dual, 1.0
    for _ in range(_STEPS):
        step = _differences(values / weight + _divergence(ahead)) / 8  # 8 bounds the norm of the differences, squared
        step *= are_both_kept
        step += ahead
        step /= np.maximum(1.0, np.hypot(step[0], step[1]))
        next_pace = (1 + math.sqrt(1 + 4 * pace**2)) / 2
        ahead = step + (pace - 1) / next_pace * (step - dual)
        dual, pace = step, next_pace
    return np.asarray(values + weight * _divergence(dual))


def _differences(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """To the next pixel below and to the right, (2, h, w); 0 at the last ones."""
    return np.stack([np.diff(values, axis=0, append=values[-1:]), np.diff(values, axis=1, append=values[:, -1:])])


def _divergence(dual: NDArray[np.float64]) -> NDArray[np.float64]:
    """Flow out of each pixel less that into it: the negative transpose of the differences."""
    flow = dual[0] + dual[1]
    flow[1:] -= dual[0, :-1]
    flow[:, 1:] -= dual[1, :, :-1]
    return np.asarray(flow)
