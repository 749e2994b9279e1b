"""Public names of applications: each is there when it is asked for, and none imports what it does not need."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ooc_chol.apps import imputation, spectral

pytestmark = [pytest.mark.host, pytest.mark.commit]


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(("application", "missing"), [(imputation, "fill"), (spectral, "cut")])
def test_every_name_is_there_and_known_to_type_checkers(application, missing):
    tree = ast.parse(Path(application.__file__).read_text(encoding="utf-8"))
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {name.asname: node.module for node in checked.body for name in node.names}
    assert imported == {name: f"{application.__name__}.{module}" for name, module in application._MODULE_OF.items()}
    for name in application.__all__:
        assert getattr(application, name).__doc__
    with pytest.raises(AttributeError, match=f"has no attribute '{missing}'"):
        getattr(application, missing)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("name", "used", "others"),
    [
        ("imputation", ("read_tensor", "cross_validate"), {"sklearn", "netCDF4", "matplotlib"}),
        ("spectral", ("bisect", "partition"), {"sklearn", "skimage", "networkx", "matplotlib", "pyamg"}),
    ],
)
def test_names_are_imported_when_they_are_asked_for(name, used, others):
    script = f"""
import sys
from ooc_chol.apps import {name}
assert not {{"sklearn", "scipy.sparse"}} & set(sys.modules)
for each in {used}:
    getattr({name}, each)
assert not {others} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
