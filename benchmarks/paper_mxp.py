"""The paper's Figures 11, 12, 13: speed, bytes and traces of mixed precision.

    python -m benchmarks paper_mxp --n 4096 --ranges weak --traces traces

``--fp64-once`` runs FP64 in the last repeat only, for the log-determinants; ``--traces`` is a folder for the trace of each
configuration's last run.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.paper.commands import add_half_products, add_options, shown, sweep_of
from benchmarks.paper.figures import run_mxp
from benchmarks.paper.tables import mxp_table
from benchmarks.running import Options, Parser
from ooc_chol.bench.case import ENGINES

FOLDER = "paper"


def options(parser: Parser) -> None:
    """Add what the case takes."""
    add_options(parser, "paper-mxp", repeats=3, nu="1/2", engines=(*ENGINES, "none"), engine="auto")
    add_half_products(parser)
    parser.takes(fp64_once=False, traces=Path)


def run(options: Options) -> int:
    """Factor in FP64 and at each threshold, in turn."""
    return shown(run_mxp(sweep_of("paper-mxp", options), options.traces), mxp_table, options)
