"""The commands of ``ooc-chol spectral``: a module each."""

from __future__ import annotations

import argparse

from ooc_chol.apps.shared import commands

#: What ``ooc-chol spectral --help`` says of each command.
COMMANDS = {
    "bisect": "cut a graph into two parts of equal weight, with few edges between them",
    "partition": "cut a graph into N parts",
    "segment": "segment an image by normalized cuts",
    "demo": "cut a mesh and segment an image, with pictures; needs no download",
}


def add_commands(spectral: argparse.ArgumentParser) -> None:
    """Add the commands of ``spectral`` to its parser."""
    commands.add_commands(spectral, __name__, COMMANDS)
