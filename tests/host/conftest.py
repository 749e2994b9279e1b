"""Fixtures of the tests that run on the host device."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.inside.hardware import CudaKind

#: Seconds after which a test that should end, ends with an error.
HANG_SECONDS = 180


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the rates that the user measured, nor those that another file's tests measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOC_CHOL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """``devices=None`` and counts mean host devices, also on a machine with a GPU."""
    monkeypatch.setattr(CudaKind, "names", lambda self: ())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="module")
def zarr_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let Zarr start the threads that it keeps until the process ends."""
    from tests.zarr_threads import start_zarr_threads

    start_zarr_threads(tmp_path_factory.mktemp("zarr"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and nothing in the memory of fsspec."""
    import fsspec

    monkeypatch.chdir(tmp_path)
    fsspec.filesystem("memory").store.clear()
    return tmp_path


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, for the files that ask for its package."""
    import torch

    return torch


@pytest.fixture(scope="module")
def sparse() -> Any:
    """Differentiable operations for PyTorch."""
    import ooc_chol.diff.torch as sparse

    return sparse


@pytest.fixture
def no_hang(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that hangs: waiting in Python is interrupted by a signal. A thorough test, of a thousand runs, has longer."""
    seconds = HANG_SECONDS * (20 if request.node.get_closest_marker("thorough") else 1)
    if "cluster" in request.node.path.stem:  # processes start, and wait for each other
        seconds *= 4

    def fail(*_: object) -> None:
        pytest.fail(f"still running after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def example(
    one_blas_thread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[Any, str]]:
    """Run an example in a folder of its own, and give its module and what it printed."""
    from tests.host.example_files import SMALL, loaded

    monkeypatch.chdir(tmp_path)

    def run(name: str, arguments: str | None = None) -> tuple[Any, str]:
        module = loaded(name)
        module.main(shlex.split(SMALL[name] if arguments is None else arguments))
        return module, capsys.readouterr().out

    return run
