"""Public names of the application: each is there when it is asked for, and none imports what it does not need."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ooc_chol.apps import imputation

pytestmark = pytest.mark.host


def test_every_name_is_there_and_known_to_type_checkers():
    tree = ast.parse(Path(imputation.__file__).read_text(encoding="utf-8"))
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {name.asname: node.module for node in checked.body for name in node.names}
    assert imported == {name: f"{imputation.__name__}.{module}" for name, module in imputation._MODULE_OF.items()}
    for name in imputation.__all__:
        assert getattr(imputation, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'fill'"):
        imputation.fill  # noqa: B018


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_names_are_imported_when_they_are_asked_for():
    script = """
import sys
from ooc_chol.apps import imputation
assert not {"sklearn", "scipy.sparse"} & set(sys.modules)
imputation.read_tensor, imputation.cross_validate
assert not {"sklearn", "netCDF4", "matplotlib"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
