"""Fixtures of the tests that run on the host device."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

#: Seconds after which a test that should end, ends with an error.
HANG_SECONDS = 60


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the rates that the user measured, nor those that another file's tests measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOC_CHOL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def host_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """``devices=None`` and counts mean host devices, also on a machine with a GPU."""
    monkeypatch.setattr("ooc_chol.hardware.kinds.CudaKind.names", lambda self: ())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def no_hang(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that hangs: waiting in Python is interrupted by a signal. A thorough test, of a thousand runs, has longer."""
    seconds = HANG_SECONDS * (20 if request.node.get_closest_marker("thorough") else 1)

    def fail(*_: object) -> None:
        pytest.fail(f"still running after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
