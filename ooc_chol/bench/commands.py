"""``ooc-chol bench``: rates, links, one case, suites of cases, imputation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ooc_chol.bench.case import ENGINES, PEERS, SOURCES, Fp64Case, Peer
from ooc_chol.bench.fp64 import Session, run_case
from ooc_chol.bench.imputation import add_imputation
from ooc_chol.bench.links import describe, run_links
from ooc_chol.bench.suites import SUITES, choose, run_suite, summary
from ooc_chol.calls.options import count
from ooc_chol.config import format_bytes, parse_devices
from ooc_chol.dense.programs.cost import ResidueRates
from ooc_chol.dense.rates.folders import USUAL_TILE_SIZE, measure_folder
from ooc_chol.dense.rates.measuring import MODULI, WARM_SECONDS, measure_rates
from ooc_chol.dense.rates.stored import kernels_of_type, rates_problem
from ooc_chol.dense.rates.together import pulled_from
from ooc_chol.formats import TYPES
from ooc_chol.hardware.rates_file import rates_path, read_rates
from ooc_chol.hardware.registry import device_kind, resolve_devices
from ooc_chol.kernels.identity import machine_identity
from ooc_chol.sparse.pass_measuring import measure_pass_rates

_RESULTS = Path("benchmarks/results")
_LINKS = Path("benchmarks/links")
#: Orders of a tile when none is given.
_TILE_SIZE = {"cuda": 4096, "host": 512}
#: Orders at which rates are measured: on GPUs those that plans of large matrices take, the native ones first and then those
#: through residues; on the host so many that all orders of tiles lie near them.
_RATE_TILE_SIZES = {"cuda": (4096, 2048), "host": (16, 64, 256, 1024, 2048)}


def add_commands(bench: argparse.ArgumentParser) -> None:
    """Add what ``bench`` measures to its parser."""
    what = bench.add_subparsers(dest="what", required=True, metavar="WHAT")
    _add_rates(what)
    _add_links(what)
    _add_fp64(what)
    _add_suite(what)
    add_imputation(what)


def _peer(text: str) -> Peer:
    """The peer that a word means, as argparse wants it."""
    try:
        return Peer.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_rates(what: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    rates = what.add_parser("rates", help="measure kernels and links, from which later plans predict seconds")
    rates.add_argument(
        "--tile-size",
        type=int,
        nargs="+",
        help="tile orders (default: 16 64 256 1024 2048, from which those of all others follow; 4096 2048 on a GPU)",
    )
    devices = "device to measure, or several GPUs with commas between, at once (default: cuda:0, without GPUs host:0)"
    rates.add_argument("--device", type=parse_devices, help=devices)
    quick = "measure in a second or two for each tile order, before a GPU's clock settles"
    rates.add_argument("--quick", action="store_true", help=quick)
    moduli = f"moduli at which products through residues are measured (default: {MODULI} on a GPU, none on the host)"
    rates.add_argument("--moduli", type=int, help=moduli)
    warm = f"seconds of DGEMM before a GPU is measured (default: {WARM_SECONDS:g})"
    rates.add_argument("--warm-seconds", type=float, help=warm)
    folder = "measure the disk under this folder instead, for stores of L there: tiles read and written past the page cache"
    rates.add_argument("--folder", type=Path, metavar="DIR", help=folder)
    passes = "measure passes over sparse matrices instead: link, memory, gathers, launches, for plans of products"
    rates.add_argument("--passes", action="store_true", help=passes)
    rates.epilog = (
        "examples:\n  ooc-chol bench rates\n  ooc-chol bench rates --quick --tile-size 2048\n"
        "  ooc-chol bench rates --folder /data/factors\n  ooc-chol bench rates --passes"
    )
    rates.set_defaults(run=_rates)


def _add_links(what: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    links = what.add_parser("links", help="measure copies to, from and between GPUs, alone and at once; writes a JSON file")
    links.add_argument("--devices", type=parse_devices, help="GPUs with commas between, or a count (default: all)")
    links.add_argument("--case", default="links", help="name of the file (default: links)")
    links.add_argument("--output", type=Path, default=_LINKS, help=f"folder (default: {_LINKS})")
    links.epilog = "examples:\n  ooc-chol bench links --devices cuda:0,cuda:1"
    links.set_defaults(run=_links)


def _add_fp64(what: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    fp64 = what.add_parser("fp64", help="FP64 out of core beside DGEMM and other libraries in one run; writes a JSON file")
    fp64.add_argument("--case", required=True, help="name of the result file")
    fp64.add_argument("--n", type=count, required=True, help="order of the matrix")
    fp64.add_argument("--tile-size", type=int, help="order of a tile (default: 4096; 512 on the host)")
    fp64.add_argument("--memory-budget", help="memory per device, such as '8 GiB' (default: what is free)")
    fp64.add_argument(
        "--devices", type=parse_devices, default="cuda:0", help="device names with commas between, or a count (default: cuda:0)"
    )
    fp64.add_argument("--engine", default="native", choices=ENGINES, help="how FP64 products are computed (default: native)")
    fp64.add_argument("--moduli", type=int, default=13, help="moduli of the residue engine (default: 13)")
    fp64.add_argument("--source", default=SOURCES[0], choices=SOURCES, help=f"where A comes from (default: {SOURCES[0]})")
    fp64.add_argument("--policy", default="planned", help="'planned' (default), 'async', 'v1', 'v2', 'v3' or 'sync'")
    names = ", ".join(PEERS)
    fp64.add_argument(
        "--peers", type=_peer, nargs="*", default=[], metavar="NAME:N", help=f"libraries to measure beside: {names}"
    )
    fp64.add_argument("--trace", type=Path, help="write the trace of the last run")
    _add_run_options(fp64, repeats=3, dgemm_seconds=5.0)
    fp64.epilog = (
        "examples:\n"
        "  ooc-chol bench fp64 --case host --devices host:0 --n 8192 --memory-budget '128 MiB'\n"
        "  ooc-chol bench fp64 --case gpu --n 131072 --memory-budget '32 GiB' --engine residue"
    )
    fp64.set_defaults(run=_fp64, rates=False)


def _add_suite(what: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    suite = what.add_parser("suite", help="run a list of cases in one process; a JSON file for each, and a table")
    suite.add_argument("name", choices=SUITES, help="which suite")
    suite.add_argument("--list", action="store_true", help="print the cases and run nothing")
    suite.add_argument("--only", nargs="+", default=[], metavar="CASE", help="these cases, in this order (default: all)")
    suite.add_argument("--no-peers", action="store_true", help="leave the other libraries out")
    suite.add_argument("--traces", type=Path, help="folder for a trace of each case's last run")
    suite.add_argument("--stop-after", type=float, metavar="SECONDS", help="begin no case after this time")
    _add_run_options(suite, repeats=None, dgemm_seconds=None)
    suite.epilog = "examples:\n  ooc-chol bench suite host --list\n  ooc-chol bench suite host --no-peers"
    suite.set_defaults(run=_suite, rates=True)


def _add_run_options(parser: argparse.ArgumentParser, *, repeats: int | None, dgemm_seconds: float | None) -> None:
    """Options of one case and of a suite; a default of None leaves it to the cases."""
    shown = {name: "as the case says" if value is None else value for name, value in (("r", repeats), ("d", dgemm_seconds))}
    parser.add_argument("--repeats", type=int, default=repeats, help=f"runs that count (default: {shown['r']})")
    parser.add_argument(
        "--dgemm-seconds", type=float, default=dgemm_seconds, help=f"seconds of DGEMM before and after (default: {shown['d']})"
    )
    parser.add_argument(
        "--warm-up",
        action=argparse.BooleanOptionalAction,
        help="discard one run of the same sizes first (default: up to n = 65536)",
    )
    parser.add_argument("--rates", action=argparse.BooleanOptionalAction, help="measure rates first, warm (default: in a suite)")
    parser.add_argument("--output", type=Path, default=_RESULTS, help=f"folder (default: {_RESULTS})")


def _rates(options: argparse.Namespace) -> None:
    if options.folder is not None:
        _folder_rates(options)
        return
    if options.passes:
        _pass_rates(options)
        return
    devices = resolve_devices(None)[:1] if options.device is None else resolve_devices(options.device)
    if (problem := rates_problem()) is not None:
        print(f"ooc-chol: {problem}: ignored, and measured anew", file=sys.stderr)
    options.answer = {"devices": devices, "stored_in": rates_path(), "rates": {}, "types": {}}
    for tile_size in options.tile_size or _RATE_TILE_SIZES[device_kind(devices[0]).name]:
        rates = measure_rates(tile_size, devices, options.moduli, warm_seconds=options.warm_seconds, quick=options.quick)
        options.answer["rates"][tile_size] = asdict(rates)
        kernels = ", ".join(f"{name} {getattr(rates, name) / 1e9:.4g}" for name in ("gemm", "syrk", "trsm", "potrf"))
        links = ", ".join(f"{name} {getattr(rates, name) / 1e9:.3g}" for name in ("source", "fetch", "write"))
        print(f"tiles of {tile_size}: {kernels} GFLOP/s; {links} GB/s (memory); {rates.launch * 1e6:.3g} us between operations")
        of_types = options.answer["types"][tile_size] = _of_other_types(tile_size, devices)
        others = ", ".join(f"{dtype} {known['gemm'] / 1e9:.4g}" for dtype, known in of_types.items())
        print(f"  GEMM of other types: {others} GFLOP/s of real numbers")
        if rates.residue is not None:
            print(f"  residues, {_described_residues(rates.residue, devices)}")
    print(f"stored in {rates_path()}")


def _folder_rates(options: argparse.Namespace) -> None:
    """Measure a folder's disk."""
    if beside := _given(options, "device", "moduli", "warm_seconds"):
        raise ValueError(f"--folder measures a disk, and no device: leave {', '.join(beside)} out")
    (tile_size, *more) = options.tile_size or [USUAL_TILE_SIZE]
    if more:
        raise ValueError("--folder is measured with tiles of one order: give one --tile-size, or none")
    found = measure_folder(options.folder, tile_size, quick=options.quick)
    options.answer = {"stored_in": rates_path(), "folder": asdict(found)}
    print(found)
    print(f"stored in {rates_path()}")


def _given(options: argparse.Namespace, *names: str) -> list[str]:
    """Words of those options that were given."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None]


def _pass_rates(options: argparse.Namespace) -> None:
    """Measure passes over sparse matrices."""
    if beside := _given(options, "tile_size", "moduli", "warm_seconds"):
        raise ValueError(f"--passes measures no tiles: leave {', '.join(beside)} out")
    found = measure_pass_rates(options.device, quick=options.quick)
    options.answer = {"stored_in": rates_path(), "passes": {name: asdict(rates) for name, rates in found.items()}}
    for name, rates in found.items():
        print(f"{name}: {rates}")
    print(f"stored in {rates_path()}")


def _of_other_types(tile_size: int, devices: Sequence[str]) -> dict[str, dict[str, float]]:
    """Rates just measured of kernels of other types than float64, by the names of types."""
    figures = read_rates()[machine_identity(devices)][str(tile_size)]
    return {dtype: known for dtype in TYPES if (known := kernels_of_type(figures, dtype)) is not None}


def _described_residues(rates: ResidueRates, devices: Sequence[str]) -> str:
    """Rates of residues, and from where copies between devices were measured."""
    source = pulled_from(devices)
    pull = f"within {source}, there is no other device" if source == devices[0] else f"from {source}"
    beside = ", ".join(f"{name} {getattr(rates, name) / 1e9:.3g}" for name in ("accumulate", "convert", "reconstruct"))
    products = f"{rates.moduli} moduli: products {rates.product / 1e9:.4g} GFLOP/s; {beside} G entries/s"
    return f"{products}; copies {rates.pull / 1e9:.3g} GB/s ({pull})"


def _links(options: argparse.Namespace) -> None:
    result = options.answer = run_links(options.case, options.devices, options.output)
    print(describe(result["links"]))
    print(f"written to {options.output / (options.case + '.json')}")


def _case_of(options: argparse.Namespace) -> Fp64Case:
    """Make the case that the options describe."""
    devices = resolve_devices(options.devices)
    return Fp64Case(
        name=options.case,
        n=options.n,
        tile_size=options.tile_size or _TILE_SIZE[device_kind(devices[0]).name],
        budget=options.memory_budget,
        engine=options.engine,
        moduli=options.moduli,
        devices=devices,
        source=options.source,
        policy=options.policy,
        repeats=options.repeats,
        warm_up=options.warm_up,
        peers=tuple(options.peers),
        dgemm_seconds=options.dgemm_seconds,
    )


def _fp64(options: argparse.Namespace) -> None:
    case = _case_of(options)
    result = options.answer = run_case(case, Session(options.output, measures_rates=options.rates), options.trace)
    dgemm = result["dgemm_tflops"]
    print(f"{case.name}: {result['tflops']:.4g} TFLOP/s; DGEMM {dgemm['before']:.4g} before, {dgemm['after']:.4g} after")
    found = result["residual"]
    largest = f"residual {found['max_scaled_over_sqrt_n']:.3g} sqrt(n) u sqrt(A_ii A_jj) at most in {found['blocks']} blocks"
    print(f"  {largest} (floor {found['floor']:.1g} u); exposed copies {100 * result['exposed_copy_share']:.1f} %")
    moved = ", ".join(f"{name} {format_bytes(count)}" for name, count in result["bytes"]["executed"].items() if count)
    print(f"  moved: {moved}")


def _suite(options: argparse.Namespace) -> int:
    """Run a suite; exit status 1 if a case has no result."""
    changes: dict[str, Any] = {name: getattr(options, name) for name in ("repeats", "dgemm_seconds", "warm_up")}
    cases = choose(options.name, options.only, peers=() if options.no_peers else None, **changes)
    options.answer = {"suite": options.name, "cases": [case.name for case in cases]}
    if options.list:
        print("\n".join(map(_described, cases)))
        return 0
    session = Session(options.output, measures_rates=options.rates)
    outcomes = run_suite(cases, session, traces=options.traces, stop_after=options.stop_after)
    options.answer["outcomes"] = {outcome.case.name: outcome.result or {"error": outcome.error} for outcome in outcomes}
    print(summary(outcomes))
    return int(any(outcome.result is None for outcome in outcomes))


def _described(case: Fp64Case) -> str:
    """Describe a case in one line."""
    engine = case.engine if case.engine == "native" else f"{case.engine} ({case.moduli} moduli)"
    budget = "free memory" if case.budget is None else case.budget
    peers = ", ".join(f"{peer.name}:{peer.n}" for peer in case.peers) or "no peers"
    return f"{case.name}: {engine}, n = {case.n}, {budget} on {', '.join(case.devices)}, {case.source}; {peers}"
