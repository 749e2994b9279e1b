"""Scheduler and workers that are started by hand, with a certificate of one's own, as docs/cluster.md says."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.documents import ROOT, read

pytestmark = pytest.mark.usefixtures("no_hang", "dask_threads", "clusters")

PAGE = ROOT / "docs/cluster.md"


def shown(language: str) -> list[str]:
    """Blocks of the page that are meant for this test."""
    mark = r"<!-- not run by the tests: tests of clusters run it (?:on one machine|with the commands \w+) -->"
    return re.findall(rf"^{mark}\n```{language}\n(.*?)^```", read(PAGE), flags=re.DOTALL | re.MULTILINE)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def here(text: str, port: int) -> str:
    """Commands of the page for two machines, on this one and on a port that is free."""
    text = text.replace("head:8786", f"127.0.0.1:{port}").replace("127.0.0.1:8787", "127.0.0.1:0")
    return text.replace("--port 8786", f"--host 127.0.0.1 --port {port}")


@contextmanager
def started(commands: list[str]):
    """Processes of ``dask``, each in its own group, which end with the block."""
    running = []
    try:
        for command in commands:
            program, *words = shlex.split(command)
            assert program == "dask"
            running.append(subprocess.Popen([sys.executable, "-m", "dask", *words], stderr=subprocess.DEVNULL))
        yield
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait(timeout=60)


def test_two_machines_by_hand_work_behind_their_certificate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, connect = shown("python")
    (text,) = shown("console")
    port, names = free_port(), {}
    exec(compile(make, str(PAGE), "exec"), names)
    assert stat.S_IMODE(Path("key.pem").stat().st_mode) == 0o600
    scheduler, worker = here(text, port).replace("\\\n", " ").replace("--memory-limit 0.9", "--memory-limit 1GiB").splitlines()
    with started([scheduler, worker, worker]):
        exec(compile(here(connect, port), str(PAGE), "exec"), names)
        with names["client"] as client:
            client.wait_for_workers(2, timeout=60)
            assert all(each.startswith("tls://") for each in client.scheduler_info(n_workers=-1)["workers"])
            a = np.eye(120) + 0.5
            with oc.cholesky(a, client=client, tile_size=20, devices="host:0") as factor:
                assert np.allclose(np.asarray(factor), np.linalg.cholesky(a))
        with pytest.raises(oc.errors.ClusterError, match=r"certificates"):
            oc.cholesky(np.eye(3), client=f"tls://127.0.0.1:{port}")
