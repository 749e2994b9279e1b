"""``ooc-chol devices``: list the devices and their memory."""

from __future__ import annotations

import argparse

import ooc_chol as oc
from ooc_chol.dense.rates.stored import REMEDY, rates_problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the command run; it has neither arguments nor options."""
    parser.set_defaults(run=_run)


def _run(_: argparse.Namespace) -> None:
    print(oc.devices())
    if (problem := rates_problem()) is not None:
        print(f"{'rates':<8} {problem}: they are ignored; {REMEDY}")
