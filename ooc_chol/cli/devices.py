"""``ooc-chol devices``: list the devices and their memory."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import ooc_chol as oc
from ooc_chol.cli.parsers import examples
from ooc_chol.dense.rates.stored import rates_problem
from ooc_chol.hardware.rates_file import REMEDY
from ooc_chol.sparse.pass_rates import pass_rates_problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let the command run; it has no arguments of its own."""
    parser.epilog = examples("ooc-chol devices", "ooc-chol devices --json")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    found, problem = oc.devices(), rates_problem() or pass_rates_problem()
    arguments.answer = {**asdict(found), "rates_problem": problem}
    print(found)
    if problem is not None:
        print(f"{'rates':<8} {problem}: they are ignored; {REMEDY}")
