"""The files of examples/ run in a folder of their own, at small sizes."""

from __future__ import annotations

import importlib.util
import re

from tests.documents import ROOT

FOLDER = ROOT / "examples"
SMALL = {
    "gp_regression": "--n 400",
    "many_right_hand_sides": "--n 300 --columns 20",
    "matrix_in_hdf5": "--n 700 --memory-budget 500kB",
    "cuda_covariance": "--n 300",
    "mixed_precision": "--n 512 --tile-size 32",
    "diff_jacobi": "--n 16",
    "diff_heavy_ball": "--n 16",
    "diff_preconditioner": "--n 8",
    "diff_gcn": "--n 600 --seeds 2",
    "diff_domain_decomposition": "--n 1024",
    "diff_spai": "--n 8",
    "diff_gmrf": "--n 12",
}


def loaded(name):
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def number(text, before):
    """The first number behind some words."""
    return float(re.search(re.escape(before) + r"\D*?([\d.]+(?:e[-+]?\d+)?)", text)[1])
