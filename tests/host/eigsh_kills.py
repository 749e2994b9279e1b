"""A script: runs that are killed at chosen places and gone on from, each in a process of its own that is forked from this one."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import scipy.sparse

import ooc_chol as oc
from tests.inside.eigen import DeviceSpace

#: Places: what is counted, and at which of them the process is killed. A write is torn: half of its bytes are there.
PLACES = [
    *(("product", number) for number in (5, 16, 20, 24, 27, 31, 34, 38)),
    *(("write", number) for number in (2, 15, 23, 30, 33, 41, 60)),
    *(("flush", number) for number in (1, 4, 7)),
    *(("rename", number) for number in (1, 3)),
]


def matrix() -> scipy.sparse.csr_array:
    """A random graph with a ring, of 500 vertices."""
    n = 500
    rows, columns = np.random.default_rng(3).integers(0, n, (2, 3 * n))
    rows, columns = np.append(rows, np.arange(n)), np.append(columns, (np.arange(n) + 1) % n)
    a = scipy.sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    a = (a + a.T).tocsr()
    a.data[:] = 1.0
    return a


def solved(checkpoint, **options):
    """The pairs that every run here is for."""
    return oc.eigsh(
        matrix(),
        **({"k": 4, "which": "LA", "ncv": 28, "tol": 1e-6, "block": 2, "devices": "host:0"} | options),
        checkpoint=checkpoint,
    )


def digest(pairs: oc.Eigenpairs) -> str:
    """All bits of a result."""
    found = hashlib.sha256()
    for part in (*pairs, pairs.residuals):
        found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def kill_at(what: str, number: int) -> None:
    """Let the process end itself at the so-manieth call."""
    counted = 0

    def due() -> bool:
        nonlocal counted
        counted += 1
        return counted == number

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if what == "write":
        write = os.pwrite

        def torn(descriptor, data, offset):
            if due():
                write(descriptor, memoryview(data)[: len(data) // 2], offset)
                end()
            return write(descriptor, data, offset)

        os.pwrite = torn
        return
    owner, name = {"product": (DeviceSpace, "product"), "flush": (os, "fsync"), "rename": (os, "replace")}[what]
    plain = getattr(owner, name)

    def killing(*arguments):
        if due():
            end()
        return plain(*arguments)

    setattr(owner, name, killing)


def in_child(work) -> int:
    """Run in a forked process; its exit status, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path, step: int) -> None:
    """Kill and go on, at every so-manieth place; print what became of each."""
    solved(None)  # imports everything once
    found = []
    for what, number in PLACES[::step]:
        path, told = folder / f"{what}{number}.ooceig", folder / f"{what}{number}.json"

        def killed(what=what, number=number, path=path):
            kill_at(what, number)
            solved(path)

        def resumed(path=path, told=told):
            pairs = solved(path)
            report = pairs.report
            told.write_text(json.dumps({"bits": digest(pairs), "passes": report.passes, "resumed": report.resumed}))

        status = in_child(killed)
        was_there = path.exists()
        if (later := in_child(resumed)) != 0:
            raise SystemExit(f"{what} {number}: the run that goes on ended with {later}")
        left = sorted(each.name for each in folder.glob(f"{path.name}*"))
        found.append(
            {"what": what, "number": number, "status": status, "was_there": was_there, "left": left}
            | json.loads(told.read_text())
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
