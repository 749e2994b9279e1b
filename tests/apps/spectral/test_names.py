"""Public names of the application: each is there when it is asked for, and none imports what it does not need."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ooc_chol.apps import spectral

pytestmark = pytest.mark.host


@pytest.mark.usefixtures("foreign")
@pytest.mark.commit
def test_every_name_is_there_and_known_to_type_checkers():
    tree = ast.parse(Path(spectral.__file__).read_text(encoding="utf-8"))
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {name.asname: node.module for node in checked.body for name in node.names}
    assert imported == {name: f"{spectral.__name__}.{module}" for name, module in spectral._MODULE_OF.items()}
    for name in spectral.__all__:
        assert getattr(spectral, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'cut'"):
        spectral.cut  # noqa: B018


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_names_are_imported_when_they_are_asked_for():
    script = """
import sys
from ooc_chol.apps import spectral
assert not {"sklearn", "scipy.sparse"} & set(sys.modules)
spectral.bisect, spectral.partition
assert not {"sklearn", "skimage", "networkx", "matplotlib", "pyamg"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
