"""A script: imputations that are killed at chosen places and gone on from, each in a process that is forked from this one."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import ooc_chol as oc
from tests.host.eigsh_kills import in_child, kill_at
from tests.inside.tensors import HostTensorSpace
from tests.tensor_runs import problem

#: Places: after a value of lambda, in the middle of the steps of one, and while a checkpoint is written or takes its name.
PLACES = [
    *(("lambda", number) for number in (1, 2, 3, 4, 5)),
    *(("step", number) for number in (1, 9, 20)),
    *(("write", number) for number in (2, 9, 16)),
    *(("rename", number) for number in (1, 3)),
]
ROUTES = ("gram64", "subspace")


def solved(checkpoint, svt="gram64", **options):
    """The imputation that every run here is for."""
    given = problem(40, 20, 2, 0.7)
    return oc.impute(given.x, given.mask, given.fourier, svt=svt, n_lambdas=9, checkpoint=checkpoint, **options)


def digest(imputed: oc.Imputed) -> str:
    """All bits of a result, and all of its history but seconds."""
    rows = [(row.lam, row.steps, row.mean_rank, row.change, row.full_route) for row in imputed.history]
    return hashlib.sha256(np.ascontiguousarray(imputed.tensor).tobytes() + repr(rows).encode()).hexdigest()


def killed(path: Path, svt: str, what: str, number: int) -> None:
    """A run that kills itself there."""
    calls = []

    def count():
        calls.append(what)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    plain = HostTensorSpace.step

    def step(space, lam, momentum=0.0, shrinkage="soft", number=0):
        count()
        return plain(space, lam, momentum, shrinkage, number)

    if what == "step":
        HostTensorSpace.step = step
    elif what != "lambda":
        kill_at(what, number)
    solved(path, svt, callback=(lambda row, estimate: count()) if what == "lambda" else None)


def main(folder: Path, step: int) -> None:
    """Kill and go on, at every so-manieth place and by both routes; print what became of each."""
    solved(None)  # imports everything once
    found = []
    for svt in ROUTES:
        for what, number in PLACES[::step]:
            name = f"{svt}-{what}{number}"
            path, told = folder / f"{name}.oocimp", folder / f"{name}.json"

            def resumed(path=path, told=told, svt=svt):
                result = solved(path, svt)
                told.write_text(json.dumps({"bits": digest(result), "resumed": result.report.resumed}))

            status = in_child(lambda path=path, svt=svt, what=what, number=number: killed(path, svt, what, number))
            was_there = path.exists()
            if (later := in_child(resumed)) != 0:
                raise SystemExit(f"{name}: the run that goes on ended with {later}")
            left = sorted(each.name for each in folder.glob(f"{path.name}*"))
            case = {"svt": svt, "what": what, "number": number, "status": status, "was_there": was_there, "left": left}
            found.append(case | json.loads(told.read_text()))
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
