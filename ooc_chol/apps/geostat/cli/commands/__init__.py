"""The commands of ``ooc-chol geostat``: a module each, of the command's name, which is imported when the command is named."""

from __future__ import annotations

import argparse

from ooc_chol.apps.geostat.cli.parser import CommandParser

#: What ``ooc-chol geostat --help`` says of each command.
COMMANDS = {
    "variogram": "semivariogram of data before any model: by distance, by direction, or a map of lags",
    "fit": "estimate covariance and mean",
    "predict": "kriging mean and standard error at new sites",
    "demo": "fit real terrain out of core, predict held-out heights, draw and trace",
    "simulate": "draw from a fitted model, with or without its data",
    "cv": "cross-validate a fitted model: leave one out, or folds",
    "loglik": "log-likelihood of given parameters, or of a fitted model",
    "convert": "print a fitted covariance in the parameters of other packages",
    "plot": "draw a fitted model: variogram, map, residuals or profile likelihood",
}


def add_commands(geostat: argparse.ArgumentParser) -> None:
    """Add the commands of ``geostat`` to its parser.

    Errors that a user can mend are left to the caller of a command's ``run``, who shows them on one line.
    """
    actions: argparse._SubParsersAction[CommandParser] = geostat.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=CommandParser
    )
    for name, text in COMMANDS.items():
        actions.add_parser(name, help=text, module=f"{__name__}.{name}", formatter_class=geostat.formatter_class)
