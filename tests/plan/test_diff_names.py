"""Public names of ooc_chol.diff: found where its table says, without a framework, and imported when asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ooc_chol
from ooc_chol import diff

pytestmark = pytest.mark.plan

#: Importing the module imports nothing of it; an operation imports no framework.
_LAZY = """
import sys
import ooc_chol as oc
oc.diff
assert [name for name in sys.modules if name.startswith("ooc_chol")] == ["ooc_chol", "ooc_chol.diff"]
assert "numpy" not in sys.modules
import numpy as np
oc.diff.matmul(oc.diff.Pattern([0, 1], [0], (1, 1)), np.ones(1), np.ones(1))
assert not {"torch", "jax", "cupy", "scipy.sparse", "scipy.linalg"} & set(sys.modules)
"""


def test_every_public_name_is_found_where_the_table_says():
    text = Path(diff.__file__).read_text(encoding="utf-8")
    imported = re.findall(r"^    from ooc_chol\.diff\.(\S+) import (\w+) as \2$", text, flags=re.MULTILINE)
    assert imported == [(module, name) for module, names in diff._NAMES.items() for name in names]
    for module, name in imported:
        assert getattr(diff, name) is getattr(import_module(f"ooc_chol.diff.{module}"), name)
    assert set(diff.__all__) <= set(dir(diff)) and "diff" in dir(ooc_chol)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'ooc_chol.diff' has no attribute 'matmull'"):
        diff.matmull  # noqa: B018


@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_what_is_imported_is_what_is_used():
    done = subprocess.run([sys.executable, "-c", _LAZY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
