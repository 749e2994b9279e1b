"""Figures whose files depend on the data alone. Needs Matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def figure_of(width: float, height: float, *shape: int, sharex: bool = True, sharey: bool = False) -> tuple[Any, Any]:
    """A figure and its axes, of so many rows and columns."""
    import matplotlib

    matplotlib.use("Agg")
    alike = {"svg.fonttype": "none", "svg.hashsalt": "ooc_chol", "axes.spines.top": False, "axes.spines.right": False}
    matplotlib.rcParams.update(alike)
    from matplotlib import pyplot

    return pyplot.subplots(*shape, figsize=(width, height), sharex=sharex, sharey=sharey, layout="constrained")


def save(figure: Any, path: Path, dpi: int = 100) -> None:
    """Write a picture, and close it."""
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi, metadata={"Date" if path.suffix == ".svg" else "Software": None})
    pyplot.close(figure)
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")
