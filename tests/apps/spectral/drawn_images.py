"""Images with known segments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def disc(shape: tuple[int, int], centre: tuple[float, float], radius: float) -> NDArray[np.bool_]:
    y, x = np.ogrid[: shape[0], : shape[1]]
    return (y - centre[0]) ** 2 + (x - centre[1]) ** 2 <= radius**2


def two_discs(seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Two discs of different grey on a dark ground, with noise, and their labels."""
    shape = (48, 64)
    labels = np.zeros(shape, np.int32)
    labels[disc(shape, (20, 18), 11)] = 1
    labels[disc(shape, (27, 46), 12)] = 2
    grey = np.array([60, 140, 200])[labels] + np.random.default_rng(seed).normal(0, 8, shape)
    return np.clip(np.rint(grey), 0, 255).astype(np.uint8), labels


def five_regions(seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Four quarters of different grey with a disc across them, and noise."""
    shape = (50, 60)
    labels = np.zeros(shape, np.int32)
    labels[:25, 30:] = 1
    labels[25:, :30] = 2
    labels[25:, 30:] = 3
    labels[disc(shape, (25, 30), 13)] = 4
    grey = np.array([20, 70, 120, 170, 230])[labels] + np.random.default_rng(seed).normal(0, 4, shape)
    return np.clip(np.rint(grey), 0, 255).astype(np.uint8), labels


def six_regions(noise: float, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Four quarters of different grey with two discs, and as much noise as is wanted."""
    shape = (80, 100)
    labels = np.zeros(shape, np.int32)
    labels[:40, 50:], labels[40:, :50], labels[40:, 50:] = 1, 2, 3
    labels[disc(shape, (40, 50), 18)], labels[disc(shape, (18, 20), 10)] = 4, 5
    grey = np.array([30, 80, 130, 180, 230, 105])[labels] + np.random.default_rng(seed).normal(0, noise, shape)
    return np.clip(np.rint(grey), 0, 255).astype(np.uint8), labels


def numbered(labels: NDArray[np.int32]) -> NDArray[np.int32]:
    """Labels numbered in the order of their first pixels."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first)).astype(np.int32)[inverse].reshape(labels.shape)
