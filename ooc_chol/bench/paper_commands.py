"""``ooc-chol bench paper-ablation | paper-kl | paper-mxp``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from ooc_chol.bench.case import ENGINES
from ooc_chol.bench.paper import POLICIES, run_ablation, run_kl, run_mxp
from ooc_chol.bench.paper_runs import CORRELATIONS, Sweep
from ooc_chol.bench.paper_tables import ablation_table, kl_table, mxp_table
from ooc_chol.config import parse_devices
from ooc_chol.dense.options import count
from ooc_chol.dense.rates.measuring import measure_rates
from ooc_chol.hardware.registry import device_kind, resolve_devices

#: Where the files go: not among those of single runs, which have other fields.
_OUTPUT = Path("benchmarks/results/paper")
#: What is measured where nothing is said: minutes on two cores; the paper's orders and memory on a GPU.
_ORDERS: dict[str, dict[str, tuple[int, ...]]] = {
    "paper-ablation": {"host": (2048, 4096), "cuda": (80000, 160000)},
    "paper-kl": {"host": (1024, 2048), "cuda": (16384, 40000)},
    "paper-mxp": {"host": (4096,), "cuda": (100000, 160000)},
}
_BUDGET: dict[str, dict[str, str | None]] = {
    "paper-ablation": {"host": "quarter", "cuda": "80 GB"},
    "paper-kl": {"host": None, "cuda": None},
    "paper-mxp": {"host": None, "cuda": "80 GB"},
}
#: Orders of a tile; where there is none, the planner chooses.
_TILE_SIZE: dict[str, dict[str, int | str | None]] = {
    "paper-ablation": {"host": "eighth", "cuda": 4096},
    "paper-kl": {"host": 256, "cuda": None},
    "paper-mxp": {"host": 512, "cuda": None},
}


def add_paper_commands(what: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the three commands to ``ooc-chol bench``."""
    ablation = what.add_parser("paper-ablation", help="the paper's Figures 6 and 8: FP64 under each policy, seconds and bytes")
    _add_options(ablation, repeats=3, nu="1/2", engines=ENGINES, engine="native")
    ablation.add_argument("--policies", nargs="+", default=list(POLICIES), choices=POLICIES, help="which (default: all)")
    ablation.epilog = "examples:\n  ooc-chol bench paper-ablation --n 2048 --devices host:0"
    ablation.set_defaults(run=_ablation)
    kl = what.add_parser("paper-kl", help="the paper's Figure 10: what precision thresholds do to a likelihood")
    _add_options(kl, repeats=1, nu="1/2 8/9", engines=ENGINES, engine="auto")
    _add_half_products(kl)
    kl.epilog = "examples:\n  ooc-chol bench paper-kl --n 1024 --thresholds 1e-6 1e-8"
    kl.set_defaults(run=_kl)
    mxp = what.add_parser("paper-mxp", help="the paper's Figures 11, 12, 13: speed, bytes and traces of mixed precision")
    _add_options(mxp, repeats=3, nu="1/2", engines=(*ENGINES, "none"), engine="auto")
    mxp.add_argument("--fp64-once", action="store_true", help="run FP64 in the last repeat only, for the log-determinants")
    mxp.add_argument("--traces", type=Path, metavar="FOLDER", help="write the trace of each configuration's last run there")
    _add_half_products(mxp)
    mxp.epilog = "examples:\n  ooc-chol bench paper-mxp --n 4096 --ranges weak --traces traces"
    mxp.set_defaults(run=_mxp)


def _add_options(parser: argparse.ArgumentParser, *, repeats: int, nu: str, engines: tuple[str, ...], engine: str) -> None:
    """Add the options that the three commands share."""
    name = parser.prog.split()[-1]
    orders = {kind: " ".join(map(str, of_kind)) for kind, of_kind in _ORDERS[name].items()}
    parser.add_argument("--n", type=count, nargs="+", help=f"orders (default: {orders['host']}; on a GPU {orders['cuda']})")
    parser.add_argument(
        "--devices", type=parse_devices, help="device names with commas between, or a count (default: one GPU, else the host)"
    )
    parser.add_argument("--memory-budget", help=f"memory per device (default: {_described_budget(name)})")
    parser.add_argument("--tile-size", type=int, help="order of a tile (default: chosen by device)")
    parser.add_argument(
        "--thresholds",
        type=float,
        nargs="+",
        default=[1e-5, 1e-6, 1e-7, 1e-8],
        help="precision thresholds (default: 1e-5 .. 1e-8)",
    )
    words = ", ".join(CORRELATIONS.values())
    parser.add_argument(
        "--ranges", type=_range, nargs="+", default=list(CORRELATIONS), help=f"ranges, or {words} (default: these three)"
    )
    parser.add_argument(
        "--nu", type=_fraction, nargs="+", default=[_fraction(text) for text in nu.split()], help=f"smoothness (default: {nu})"
    )
    parser.add_argument("--nugget", type=float, default=1e-6, help="added to the diagonal (default: 1e-6)")
    parser.add_argument("--fp64", choices=engines, default=engine, help=f"how FP64 is computed (default: {engine})")
    parser.add_argument("--repeats", type=int, default=repeats, help=f"runs that count (default: {repeats})")
    parser.add_argument(
        "--warm-up", action=argparse.BooleanOptionalAction, default=True, help="small runs first that do not count (default: yes)"
    )
    parser.add_argument("--rates", action="store_true", help="measure rates of the tile order first, so that plans predict")
    parser.add_argument("--case", help=f"name of the file (default: host-{name} or cuda-{name})")
    parser.add_argument("--output", type=Path, default=_OUTPUT, help=f"folder (default: {_OUTPUT})")


def _add_half_products(parser: argparse.ArgumentParser) -> None:
    words = "products in FP16 where they are small enough (default: where rates say that it is faster)"
    parser.add_argument("--half-products", action=argparse.BooleanOptionalAction, default=None, help=words)


def _described_budget(name: str) -> str:
    host, cuda = _BUDGET[name]["host"], _BUDGET[name]["cuda"]
    shown = "a quarter of L" if host == "quarter" else "what is free"
    return f"{shown}; on a GPU {cuda or 'what is free'}"


def _range(text: str) -> float:
    """Parse a range: a number, or the paper's word for one."""
    named = {word: value for value, word in CORRELATIONS.items()}
    return named[text] if text in named else float(text)


def _fraction(text: str) -> float:
    """Parse a number such as ``"0.5"`` or ``"8/9"``."""
    return float(Fraction(text))


def _sweep(name: str, options: argparse.Namespace) -> Sweep:
    """Make the sweep that the options and the device ask for."""
    devices = resolve_devices(options.devices)
    if options.devices is None:
        devices = devices[:1]
    kind = device_kind(devices[0]).name
    sweep = Sweep(
        case=options.case or f"{kind}-{name}",
        orders=tuple(options.n or _ORDERS[name][kind]),
        devices=devices,
        budget=options.memory_budget or _BUDGET[name][kind],
        tile_size=options.tile_size or _TILE_SIZE[name][kind],
        output=options.output,
        thresholds=tuple(options.thresholds),
        ranges=tuple(options.ranges),
        smoothness=tuple(options.nu),
        repeats=options.repeats,
        nugget=options.nugget,
        fp64=options.fp64,
        half_products=getattr(options, "half_products", None),
        fp64_once=getattr(options, "fp64_once", False),
        warm_up=options.warm_up,
    )
    if options.rates:
        for tile_size in sorted({size for n in sweep.orders if (size := sweep.tile_size_of(n))}) or [4096, 2048]:
            measure_rates(tile_size, devices if sweep.on_gpu else devices[:1])
    return sweep


def _show(content: Mapping[str, Any], table: Callable[[Mapping[str, Any]], str], options: argparse.Namespace) -> int:
    """Print the table and where the file is; 1 if a configuration has no result."""
    options.answer = dict(content)
    print(table(content))
    print(f"written to {options.output / (content['case'] + '.json')}")
    return int(any("error" in run for run in content["runs"]))


def _ablation(options: argparse.Namespace) -> int:
    """Figures 6 and 8; 1 also if a policy moved more bytes than the one before it."""
    content = run_ablation(_sweep("paper-ablation", options), options.policies)
    return _show(content, ablation_table, options) or int(content["volume_order_holds"] is False)


def _kl(options: argparse.Namespace) -> int:
    return _show(run_kl(_sweep("paper-kl", options)), kl_table, options)


def _mxp(options: argparse.Namespace) -> int:
    return _show(run_mxp(_sweep("paper-mxp", options), options.traces), mxp_table, options)
