"""The paper's Figure 10: what precision thresholds do to a likelihood.

python -m benchmarks paper_kl --n 1024 --thresholds 1e-6 1e-8
"""

from __future__ import annotations

from benchmarks.paper.commands import add_half_products, add_options, shown, sweep_of
from benchmarks.paper.figures import run_kl
from benchmarks.paper.tables import kl_table
from benchmarks.running import Options, Parser
from ooc_chol.bench.case import ENGINES

FOLDER = "paper"


def options(parser: Parser) -> None:
    """Add what the case takes."""
    add_options(parser, "paper-kl", repeats=1, nu="1/2 8/9", engines=ENGINES, engine="auto")
    add_half_products(parser)


def run(options: Options) -> int:
    """Factor in FP64 and at each threshold."""
    return shown(run_kl(sweep_of("paper-kl", options)), kl_table, options)
