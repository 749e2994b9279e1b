"""Signals that end a command: one line, the shell's exit status, nothing half written, also while the package is imported."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.matrices import FAMILIES
from tests.host.runs import COMMAND, ENVIRONMENT
from tests.inside.cli import main
from tests.inside.dense import FileStore

pytestmark = pytest.mark.usefixtures("no_hang")

#: Signals, the exit status, and what is said.
SIGNALS_OF_COMMANDS = {
    "INT": (signal.SIGINT, 130, "interrupted"),
    "TERM": (signal.SIGTERM, 143, "terminated"),
    "HUP": (signal.SIGHUP, 129, "hung up"),
}
SIGNALS = pytest.mark.parametrize(("number", "status", "said"), SIGNALS_OF_COMMANDS.values(), ids=SIGNALS_OF_COMMANDS)
#: Modules at whose import a signal comes.
ENDING = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a matrix, and a factor of an earlier run."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", FAMILIES["exponential"](200))
    oc.cholesky(np.eye(3), store="L.factor").close()
    return tmp_path


@SIGNALS
@pytest.mark.parametrize("threshold", [(), ("--precision-threshold", "1e-4")], ids=["FP64", "mixed"])
def test_a_signal_during_a_run_leaves_nothing_behind(folder, monkeypatch, capsys, number, status, said, threshold):
    """The signal comes while tiles are written: the file of L is there, and is not complete."""
    write, sent, kept = FileStore.write, [], Path("L.factor").read_bytes()
    write_stored = FileStore.write_stored

    def send(original):
        def call(store, index, data):
            if not sent:
                sent.append(os.path.exists("L.factor.partial"))
                os.kill(os.getpid(), number)
            original(store, index, data)

        return call

    monkeypatch.setattr(FileStore, "write", send(write))
    monkeypatch.setattr(FileStore, "write_stored", send(write_stored))
    before = {each: signal.getsignal(each) for each in ENDING}
    words = ["factor", "a.npy", "--store", "L.factor", "--tile-size", "32", "--memory-budget", "200 kB", "--quiet", *threshold]
    assert main(words) == status
    assert capsys.readouterr() == ("", f"ooc-chol: {said}\n")
    assert sent == [True] and sorted(os.listdir()) == ["L.factor", "a.npy"] and Path("L.factor").read_bytes() == kept
    assert {each: signal.getsignal(each) for each in ENDING} == before, "handlers are the process's own again"


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_a_signal_that_is_ignored_or_handled_stays_so(monkeypatch, capsys, handler):
    """As nohup leaves SIGHUP, and as a program that calls main may wish."""
    seen = []
    plan = oc.plan

    def note(*arguments, **named):
        seen.append([signal.getsignal(number) for number in ENDING])
        return plan(*arguments, **named)

    monkeypatch.setattr(oc, "plan", note)
    before = [signal.signal(number, handler) for number in ENDING]
    try:
        assert main(["plan", "--n", "9"]) == 0
    finally:
        for number, old in zip(ENDING, before, strict=True):
            signal.signal(number, old)
    assert seen == [[handler, handler]]


def test_a_command_on_another_thread_leaves_signals_alone(capsys):
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append(main(["plan", "--n", "9"])))
    thread.start()
    thread.join()
    assert statuses == [0]


#: Sends itself a signal when a module is looked for, then goes on as the installed command does.
WHILE_IMPORTING = """
import os, signal, sys
module, number, *words = sys.argv[1:]
class Sender:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), int(number))
sys.meta_path.insert(0, Sender())
from ooc_chol_command import main
sys.argv[1:] = words
sys.exit(main())
"""


DRIVER = f"ooc_chol.{oc._MODULE_OF['plan']}"
#: Modules while which are imported a signal comes, and the words of a command that imports them.
IMPORTED = {
    **dict.fromkeys(("numpy", "scipy", DRIVER, "ooc_chol.cli.plan"), "plan --n 9"),
    "ooc_chol.bench": "bench suite host --list",
    "ooc_chol.apps": "geostat fit --example jacksboro:50 --dry-run",
}
#: Each module with Ctrl-C, each other signal at one of them; the rest is thorough: a process takes a second or two.
USUAL = {("INT", module) for module in IMPORTED} | {("TERM", "scipy"), ("HUP", DRIVER)}


@pytest.mark.parametrize(
    ("number", "status", "said", "module"),
    [
        pytest.param(*values, module, id=f"{name}-{module}", marks=() if (name, module) in USUAL else pytest.mark.thorough)
        for name, values in SIGNALS_OF_COMMANDS.items()
        for module in IMPORTED
    ],
)
@pytest.mark.usefixtures("processes")
def test_a_signal_while_modules_are_imported_ends_without_a_word(tmp_path, module, number, status, said):
    command = [COMMAND[0], "-c", WHILE_IMPORTING, module, str(int(number)), *IMPORTED[module].split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@pytest.mark.usefixtures("processes")
def test_the_installed_command_is_that_module():
    root = Path(__file__).resolve().parents[2]
    assert 'ooc-chol = "ooc_chol_command:main"' in (root / "pyproject.toml").read_text(encoding="utf-8")
    done = subprocess.run(
        [COMMAND[0], "-m", "ooc_chol_command", "--version"], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    assert done.stdout == f"ooc_chol {oc.__version__}\n"
