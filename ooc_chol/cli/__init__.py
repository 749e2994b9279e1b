"""``ooc-chol``: plan, factor, list devices, measure, and the applications' own commands."""

from ooc_chol.cli.command import main as main
