"""The paper's Figures 6 and 8: FP64 under each policy, seconds and bytes.

    python -m benchmarks paper_ablation --n 2048 --devices host:0

The status is 1 also where a policy moved more bytes than the one before it.
"""

from __future__ import annotations

from benchmarks.paper.commands import add_options, shown, sweep_of
from benchmarks.paper.figures import POLICIES, run_ablation
from benchmarks.paper.tables import ablation_table
from benchmarks.running import Options, Parser
from ooc_chol.bench.case import ENGINES

FOLDER = "paper"


def options(parser: Parser) -> None:
    """Add what the case takes."""
    add_options(parser, "paper-ablation", repeats=3, nu="1/2", engines=ENGINES, engine="native")
    parser.takes(policies=POLICIES)


def run(options: Options) -> int:
    """Factor under each policy."""
    content = run_ablation(sweep_of("paper-ablation", options), options.policies)
    return shown(content, ablation_table, options) or int(content["volume_order_holds"] is False)
