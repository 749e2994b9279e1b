"""All measurements that README and documents quote of one kind of machine, one after the other, in at most 25 minutes.

    python -m benchmarks release --gpus 0          # the host alone
    python -m benchmarks release --gpus 1 --name h200
    python -m benchmarks release --gpus 1 --list   # what would run, its seconds and its files

Each command writes its own result files, and ``python -m benchmarks quote`` then brings README and documents to these. Beside
them ``release/NAME.json`` says which commands ran at which commit, for how long and how they ended. The same call goes on where
one before was stopped: a command that ended well at this commit, and whose files are of this commit, is not run again.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.running import RESULTS, Options, Parser, head, parsed, result_names, seconds_of

FOLDER = "release"
#: A command may take so many times its expected seconds, and this long at least, before it is stopped.
_PATIENCE, _LEAST_PATIENCE = 3, 60
TAKES = {"minutes": 25.0, "list": False}


class Command(NamedTuple):
    """Command behind ``python -m``, and the seconds that it is expected to take."""

    words: str
    seconds: int


COMMANDS: dict[int, tuple[Command, ...]] = {
    0: (
        Command("benchmarks whole_calls host --name host-2-cores --force", 120),
        Command("benchmarks systems --devices host:0 --name host-systems --force", 300),
        Command("benchmarks host_fp64 --force", 240),
        Command("benchmarks planning --name planning --force", 60),
    ),
    1: (
        Command("ooc_chol bench suite residue-1gpu --only h200-residue-131072-32g", 150),
        Command("ooc_chol bench suite native-1gpu --only h200-native-131072-24g h200-native-65536-8g --no-peers", 180),
        Command("benchmarks whole_calls cupy --name h200-cupy --force", 40),
        Command("benchmarks whole_calls numpy --name h200-numpy --force", 105),
        Command("benchmarks whole_calls function --name h200-function-65536 --force", 30),
        Command(
            "benchmarks matrix_types --types complex128 --engines residue native --places host "
            "--repeats 2 --peer-repeats 1 --name h200 --force",
            165,
        ),
        Command(
            "benchmarks matrix_types --types float32 --engines residue --places host "
            "--repeats 2 --peer-repeats 1 --name h200 --force",
            70,
        ),
        Command("benchmarks certified_answers --memory-budget '8 GiB' --range 0.02627 --name h200-65536 --force", 35),
        Command("benchmarks certified_answers --store device --name h200-65536-device --force", 40),
        Command("benchmarks certified_answers --n 131072 --store device --range 0.02627 --name h200-131072-device --force", 40),
        Command("benchmarks eigen in-core --scales 22 --order degree --name h200-22 --force", 50),
        Command("benchmarks eigen in-core --scales 25 --order degree --name h200-25 --force", 195),
        Command(
            "benchmarks segments --devices cuda:0 --solvers whole --threads 16 --repeats 2 "
            "--images coins --sizes 600x450 1920x1080 --name h200-segments --force",
            95,
        ),
        Command("benchmarks systems --devices cuda:0 --name h200-systems --force", 155),
        Command("benchmarks diff_gpu --cases products panels spgemm gcn --name h200 --force", 85),
        Command("benchmarks tensor_kernels --sizes 4039x50x50 --repeats 2 --name h200 --force", 65),
    ),
    2: (
        Command("benchmarks several_gpus --devices cuda:0,cuda:1 --counts 1 2 --calls 2 --name h200x2 --force", 450),
        Command("benchmarks eigen several --scales 25 --order degree --name h200x2 --force", 75),
        Command("benchmarks imputation_gpus two --name h200x2-2600x512x512 --force", 65),
        Command(
            "benchmarks cluster_gpu --n 98304 --devices cuda:0,cuda:1 --engines residue --repeats 2 --seconds 100 "
            "--name h200x2-98304 --force",
            80,
        ),
        Command(
            "benchmarks cluster_gpu --n 131072 --devices cuda:0,cuda:1 --workers 1 --engines residue --repeats 1 --seconds 60 "
            "--name h200x2-131072 --force",
            70,
        ),
        Command("benchmarks cluster_products --scale 25 --k 8 --devices cuda:0,cuda:1 --name h200x2-products --force", 45),
    ),
    4: (
        Command("benchmarks several_gpus --devices cuda --counts 1 2 4 --calls 2 --name h200x4 --force", 600),
        Command("ooc_chol bench suite multi-gpu --only h200x4-residue-163840 h200x4-native-163840", 300),
        Command(
            "benchmarks cluster_gpu --n 98304 --devices cuda --workers 2 --engines residue --repeats 2 --seconds 60 "
            "--name h200x4-98304 --force",
            70,
        ),
        Command(
            "benchmarks eigen several --scales 26 --devices cuda --budgets 8GiB 3.3GiB --name h200x4-26-streamed --force", 60
        ),
    ),
}

#: Results that pages quote and no release measures, by patterns of their names, and why.
OTHERS = {
    "h200-fp64-*": "the ablation of the paper's policies",
    "h200-residue-250000-112g": "one call takes 99 s",
    "h200-residue-163840-48g": "107 GB of host memory, more than machines at hand say is free",
    "residue_rates/h200-*": "ablations in the lab notes",
    "diff/h200-solves": "cuDSS, which is not on every machine",
    "imputation/h200-*": "edges of ego-Facebook, which are a file of others, and tensors beside it",
    "imputation/host-when": "errors, which depend on no machine",
    "sparse/*": "passes over generated graphs, measured apart",
    "geostat/modis-*": "temperatures, which are a file of others",
    "*/h100*": "another GPU",
    "cluster/machines": "predictions",
}


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument(
        "--gpus", type=int, choices=sorted(COMMANDS), required=True, help="GPUs of the machine; 0 for the host alone"
    )


def usual_name(options: Options) -> str:
    """Name of the file where none is given."""
    return f"gpus-{options.gpus}" if options.gpus else "host"


def files(options: Options) -> Iterator[str]:
    """None that must not be there: a run goes on where one before was stopped."""
    return iter(())


def run(options: Options) -> int:
    """Run what is not done, as far as there is time for it; the exit status tells whether all is done."""
    commands, left = COMMANDS[options.gpus], 60 * options.minutes
    if options.list:
        for each in commands:
            print(f"{each.seconds:5} s  python -m {each.words}", *files_of(each.words), sep="\n         ")
        print(f"{sum(each.seconds for each in commands):5} s in all")
        return 0
    options.devices = ("cuda:0",) if options.gpus else ("host:0",)
    options.force, commit = True, head(options.name, options.on_gpu)["commit"]
    ran = _ran(options, commands)
    for command in commands:
        if _is_done(ran, command, commit):
            continue
        if command.seconds > left:
            print(f"not begun, as {left:.0f} s are left: {command.words}", flush=True)
            continue
        took, status = seconds_of(lambda command=command: _status(command))
        left -= took
        print(f"{took:7.1f} s, status {status}: {command.words}", flush=True)
        ran[command.words] = {"commit": commit, "seconds": took, "status": status}
        options.write({"gpus": options.gpus, "commands": ran})
    return int(not all(_is_done(ran, each, commit) for each in commands))


def files_of(words: str) -> list[Path]:
    """Result files of a command."""
    module, *others = shlex.split(words)
    if module == "ooc_chol":
        cases = takewhile(lambda word: not word.startswith("--"), others[others.index("--only") + 1 :])
        return [RESULTS / f"{case}.json" for case in cases]
    case, options = parsed(others)
    return [options.output / f"{name}.json" for name in result_names(case, options)]


def _ran(options: Options, commands: Sequence[Command]) -> dict[str, Any]:
    """Records of these commands from runs before, at whatever commit, by their words."""
    if not Path(options.output, f"{options.name}.json").exists():
        return {}
    before, words = options.read()["commands"], {each.words for each in commands}
    return {each: ended for each, ended in before.items() if each in words}


def _is_done(ran: Mapping[str, Any], command: Command, commit: str) -> bool:
    """Tell whether a command ended well at this commit and its files are of it."""
    last = ran.get(command.words)
    is_well = last is not None and last["status"] == 0 and last["commit"] == commit
    return is_well and all(_commit_of(path) == commit for path in files_of(command.words))


def _commit_of(path: Path) -> str | None:
    """The commit that a result file holds; None where there is no file."""
    return str(json.loads(path.read_text(encoding="utf-8")).get("commit")) if path.exists() else None


def _status(command: Command) -> int | str:
    """How a command ended: its exit status, or that it was stopped."""
    try:
        limit = max(_LEAST_PATIENCE, _PATIENCE * command.seconds)
        return subprocess.run([sys.executable, "-m", *shlex.split(command.words)], check=False, timeout=limit).returncode
    except subprocess.TimeoutExpired:
        return f"stopped after {limit} s"
