"""Parts that the cases ``paper_ablation``, ``paper_kl`` and ``paper_mxp`` share: options, orders, budgets, printing."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from benchmarks.paper.runs import CORRELATIONS, Sweep
from benchmarks.running import Options, Parser
from ooc_chol.dense.options import count
from ooc_chol.dense.rates.measuring import measure_rates
from ooc_chol.hardware.registry import device_kind, resolve_devices

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


def add_options(parser: Parser, name: str, *, repeats: int, nu: str, engines: tuple[str, ...], engine: str) -> None:
    """Add the options that the three cases share."""
    orders = {kind: " ".join(map(str, of_kind)) for kind, of_kind in _ORDERS[name].items()}
    parser.add_argument("--n", type=count, nargs="+", help=f"orders (default: {orders['host']}; on a GPU {orders['cuda']})")
    parser.add_argument("--memory-budget", help=f"memory per device (default: {_described_budget(name)})")
    parser.takes(devices=None, tile_size=int, thresholds=[1e-5, 1e-6, 1e-7, 1e-8], nugget=1e-6, repeats=repeats, rates=False)
    words = ", ".join(CORRELATIONS.values())
    parser.add_argument(
        "--ranges", type=_range, nargs="+", default=list(CORRELATIONS), help=f"ranges, or {words} (default: these three)"
    )
    parser.add_argument(
        "--nu", type=_fraction, nargs="+", default=[_fraction(text) for text in nu.split()], help=f"smoothness (default: {nu})"
    )
    parser.add_argument("--fp64", choices=engines, default=engine, help=f"how FP64 is computed (default: {engine})")
    parser.add_argument("--warm-up", action=argparse.BooleanOptionalAction, default=True, help="small runs first")


def add_half_products(parser: Parser) -> None:
    """Add ``--half-products``."""
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


def sweep_of(name: str, options: Options) -> Sweep:
    """Make the sweep that the options and the device ask for."""
    devices = resolve_devices(options.devices)
    if options.devices is None:
        devices = devices[:1]
    kind = device_kind(devices[0]).name
    sweep = Sweep(
        case=options.name or f"{kind}-{name}",
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


def shown(content: Mapping[str, Any], table: Callable[[Mapping[str, Any]], str], options: Options) -> int:
    """Print the table and where the file is; 1 if a configuration has no result."""
    print(table(content))
    print(f"written to {options.output / (content['case'] + '.json')}")
    return int(any("error" in run for run in content["runs"]))
