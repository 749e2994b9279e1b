"""``ooc-chol devices``."""

from __future__ import annotations

import argparse

import ooc_chol as oc
from ooc_chol.dense.rates.stored import REMEDY, rates_problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the words of ``devices``: it has none."""
    parser.set_defaults(run=_run)


def _run(_: argparse.Namespace) -> None:
    print(oc.devices())
    if (problem := rates_problem()) is not None:
        print(f"{'rates':<8} {problem}: they are ignored; {REMEDY}")
