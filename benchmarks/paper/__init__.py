"""Figures 6, 8 and 10 to 13 of Ren, Ltaief, Abdulah and Keyes (2024) on this machine, beside the numbers that they print."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.paper.figures import POLICIES, ablation, kl, mxp
from benchmarks.paper.runs import CORRELATIONS, Sweep
from benchmarks.paper.tables import ablation_table, kl_table, mxp_table
from benchmarks.running import Options, Parser
from ooc_chol.bench.case import ENGINES
from ooc_chol.dense.options import count
from ooc_chol.dense.rates.measuring import measure_rates
from ooc_chol.hardware.registry import device_kind, resolve_devices

FOLDER = "paper"


class Defaults(NamedTuple):
    """Cases that are measured where nothing is said: minutes on two cores, the paper's orders and memory on a GPU."""

    orders: tuple[int, ...]
    budget: str | None = None
    tile_size: int | str | None = None  #: Where there is none, the planner chooses


DEFAULTS = {
    "ablation": {"host": Defaults((2048, 4096), "quarter", "eighth"), "cuda": Defaults((80000, 160000), "80 GB", 4096)},
    "kl": {"host": Defaults((1024, 2048), None, 256), "cuda": Defaults((16384, 40000))},
    "mxp": {"host": Defaults((4096,), None, 512), "cuda": Defaults((100000, 160000), "80 GB")},
}


def _shared(parser: Parser, name: str, *, repeats: int, nu: str, engine: str, engines: tuple[str, ...] = ENGINES) -> None:
    """Add the options that the three cases share."""
    host, cuda = DEFAULTS[name]["host"], DEFAULTS[name]["cuda"]
    orders = [" ".join(map(str, each.orders)) for each in (host, cuda)]
    parser.add_argument("--n", type=count, nargs="+", help=f"orders (default: {orders[0]}; on a GPU {orders[1]})")
    budget = "a quarter of L" if host.budget else "what is free"
    words = f"memory per device (default: {budget}; on a GPU {cuda.budget or 'what is free'})"
    parser.add_argument("--memory-budget", help=words)
    parser.takes(devices=None, tile_size=int, thresholds=[1e-5, 1e-6, 1e-7, 1e-8], nugget=1e-6, repeats=repeats, rates=False)
    words = f"ranges, or {', '.join(CORRELATIONS.values())} (default: these three)"
    parser.add_argument("--ranges", type=_range, nargs="+", default=list(CORRELATIONS), help=words)
    smoothness = [_fraction(text) for text in nu.split()]
    parser.add_argument("--nu", type=_fraction, nargs="+", default=smoothness, help=f"smoothness (default: {nu})")
    parser.add_argument("--fp64", choices=engines, default=engine, help=f"how FP64 is computed (default: {engine})")
    parser.add_argument("--warm-up", action=argparse.BooleanOptionalAction, default=True, help="small runs first")
    if name != "ablation":
        words = "products in FP16 where they are small enough (default: where rates say that it is faster)"
        parser.add_argument("--half-products", action=argparse.BooleanOptionalAction, default=None, help=words)


def _range(text: str) -> float:
    """A range: a number, or the paper's word for one."""
    return {word: value for value, word in CORRELATIONS.items()}.get(text) or float(text)


def _fraction(text: str) -> float:
    """A number such as ``"0.5"`` or ``"8/9"``."""
    return float(Fraction(text))


def _devices(options: Options) -> tuple[str, ...]:
    """Those that are named, or the first one."""
    devices = resolve_devices(options.devices)
    return devices[:1] if options.devices is None else devices


def usual_name(options: Options) -> str:
    """By the kind of the devices, and the case."""
    return f"{device_kind(_devices(options)[0]).name}-{options.case.replace('_', '-')}"


def _sweep(name: str, options: Options) -> Sweep:
    """The sweep that the options and the device ask for."""
    devices = _devices(options)
    kind = device_kind(devices[0]).name
    usual = DEFAULTS[name][kind]
    sweep = Sweep(
        case=str(options.name),
        orders=tuple(options.n or usual.orders),
        devices=devices,
        budget=options.memory_budget or usual.budget,
        tile_size=options.tile_size or usual.tile_size,
        thresholds=tuple(options.thresholds),
        ranges=tuple(options.ranges),
        smoothness=tuple(options.nu),
        half_products=getattr(options, "half_products", None),
        fp64_once=getattr(options, "fp64_once", False),
        **{name: getattr(options, name) for name in ("output", "repeats", "nugget", "fp64", "warm_up")},
    )
    if options.rates:
        for tile_size in sorted({size for n in sweep.orders if (size := sweep.tile_size_of(n))}) or [4096, 2048]:
            measure_rates(tile_size, devices if sweep.on_gpu else devices[:1])
    return sweep


def _shown(content: Mapping[str, Any], table: Callable[[Mapping[str, Any]], str], options: Options) -> int:
    """Print the table and where the file is; 1 if a configuration has no result."""
    print(table(content))
    print(f"written to {options.output / (content['case'] + '.json')}")
    return int(any("error" in run for run in content["runs"]))


def options_ablation(parser: Parser) -> None:
    """Add what the case takes."""
    _shared(parser, "ablation", repeats=3, nu="1/2", engine="native")
    parser.takes(policies=POLICIES)


def run_ablation(options: Options) -> int:
    """The paper's Figures 6 and 8: FP64 under each policy, seconds and bytes.

        python -m benchmarks paper_ablation --n 2048 --devices host:0

    The status is 1 also where a policy moved more bytes than the one before it.
    """
    content = ablation(_sweep("ablation", options), options.policies)
    return _shown(content, ablation_table, options) or int(content["volume_order_holds"] is False)


def options_kl(parser: Parser) -> None:
    """Add what the case takes."""
    _shared(parser, "kl", repeats=1, nu="1/2 8/9", engine="auto")


def run_kl(options: Options) -> int:
    """The paper's Figure 10: what precision thresholds do to a likelihood.

    python -m benchmarks paper_kl --n 1024 --thresholds 1e-6 1e-8
    """
    return _shown(kl(_sweep("kl", options)), kl_table, options)


def options_mxp(parser: Parser) -> None:
    """Add what the case takes."""
    _shared(parser, "mxp", repeats=3, nu="1/2", engine="auto", engines=(*ENGINES, "none"))
    parser.takes(fp64_once=False, traces=Path)


def run_mxp(options: Options) -> int:
    """The paper's Figures 11, 12, 13: speed, bytes and traces of mixed precision.

        python -m benchmarks paper_mxp --n 4096 --ranges weak --traces traces

    ``--fp64-once`` runs FP64 in the last repeat only, for the log-determinants; ``--traces`` is a folder for the trace of each
    configuration's last run.
    """
    return _shown(mxp(_sweep("mxp", options), options.traces), mxp_table, options)
