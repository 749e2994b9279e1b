"""Fixtures of the tests of applications."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the rates that the user measured, nor those that another file's tests measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OOC_CHOL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
