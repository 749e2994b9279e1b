"""Importing ooc_chol needs, and touches, core dependencies only."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ooc_chol

pytestmark = pytest.mark.commit

#: Installed before anything else: remembers and refuses every import of a package that belongs to an extra.
REFUSE_EXTRAS = """
import sys

EXTRAS = {
    *("cupy", "nvmath", "pynvml", "matplotlib", "sklearn", "gstools", "torch", "jax", "jaxlib"),
    *("pyamg", "skimage", "networkx", "zarr", "dask", "distributed", "fsspec", "obstore", "google_crc32c"),
    *("geopandas", "h5py", "netCDF4", "pandas", "pyarrow", "pyogrio", "pyproj", "shapely", "xarray"),
}

class Refuse:
    asked = []

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            self.asked.append(name)
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Refuse())
"""

IMPORT_THE_PACKAGE = """
import ooc_chol
assert Refuse.asked == [], f"import ooc_chol asks for {Refuse.asked}"
"""

#: What neither importing the package nor a factorization of an array on the host needs.
NOT_NEEDED = (
    "scipy.linalg",
    "tqdm",
    "perfetto",
    "importlib.metadata",
    f"ooc_chol.{ooc_chol.rates._MODULE_OF['measure_rates']}",
    "ooc_chol.bench",
    "ooc_chol.apps",
)

IMPORT_ALONE = f"""
import sys
import ooc_chol
assert "numpy" not in sys.modules
assert [name for name in sys.modules if name.startswith("ooc_chol")] == ["ooc_chol"]
import numpy as np
with ooc_chol.cholesky(np.eye(100), devices="host:0") as factor:
    factor.solve(np.ones(100))
    str(factor.report)
assert [name for name in {NOT_NEEDED} if name in sys.modules] == []
"""

IMPORT_EVERY_MODULE = """
import importlib, pathlib
import ooc_chol

top = pathlib.Path(ooc_chol.__file__).parent
files = [path.relative_to(top.parent).with_suffix("") for path in sorted(top.rglob("*.py"))]
modules = [".".join(path.parts).removesuffix(".__init__") for path in files]
# Their classes are built on those of an extra; importing the packages above them does not import them.
cuda = ("ooc_chol.hardware.cuda", "ooc_chol.kernels.cuda", "ooc_chol.bench.cuda")
other = ("ooc_chol.apps.geostat.estimator", "ooc_chol.apps.imputation.estimator", "ooc_chol.apps.spectral.estimators")
other += ("ooc_chol.apps.shared.estimators",)
other += ("ooc_chol.diff.torch", "ooc_chol.diff.jax")
modules = [name for name in modules if not name.startswith((*cuda, *other))]
assert {"ooc_chol.kernels", "ooc_chol.apps.geostat"} <= set(modules)
for name in modules:
    importlib.import_module(name)
    assert Refuse.asked == [], f"{name} asks for {Refuse.asked}"
"""


@pytest.mark.host
@pytest.mark.parametrize("program", [IMPORT_THE_PACKAGE, IMPORT_EVERY_MODULE], ids=["package", "every module"])
@pytest.mark.usefixtures("processes")
def test_import_asks_for_no_extra(program):
    done = subprocess.run([sys.executable, "-c", REFUSE_EXTRAS + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.host
@pytest.mark.usefixtures("processes")
def test_importing_imports_nothing_and_a_factorization_only_what_it_needs():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


#: All that ``oc`` has. What is for applications, or is no more than a type of what a call returns, is in the toolbox.
TOP = {
    *("cholesky", "solve", "logdet", "load", "symm", "multiply", "multiplier", "block_csr", "eigsh", "svds", "impute"),
    *("plan", "plan_multiply", "plan_eigsh", "plan_svds", "plan_impute"),
    *("from_function", "edge_list", "metis_graph", "laplacian", "GraphFourier"),
    *("devices", "open_cluster", "HostMemory", "Precision", "FactorOptions", "Trace"),
    *("CholeskyFactor", "BatchFactor", "Eigenpairs", "SingularTriplets", "Imputed", "BlockCSR", "Operator", "Multiplier", "Plan"),
    *("OocCholError", "NotPositiveDefiniteError", "BudgetError"),
    *("diff", "errors", "rates", "testing", "toolbox"),
}
MOST_AT_THE_TOP = 45


def test_few_names_are_at_the_top_and_each_on_purpose():
    assert set(ooc_chol.__all__) == TOP and len(TOP) <= MOST_AT_THE_TOP


@pytest.mark.parametrize(
    "place", [ooc_chol, ooc_chol.rates, ooc_chol.testing, ooc_chol.toolbox], ids=lambda place: place.__name__
)
def test_every_public_name_is_found_where_the_table_says(place):
    text = Path(place.__file__).read_text(encoding="utf-8")
    imported = re.findall(r"^    from ooc_chol\.(\S+) import (\w+) as \2$", text, flags=re.MULTILINE)
    assert imported == [(module, name) for module, names in place._NAMES.items() for name in names]
    for module, name in imported:
        assert getattr(place, name) is getattr(import_module(f"ooc_chol.{module}"), name)
    assert set(place.__all__) <= set(dir(place))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'ooc_chol' has no attribute 'cholseky'"):
        ooc_chol.cholseky  # noqa: B018
    with pytest.raises(ImportError, match="cholseky"):
        exec("from ooc_chol import cholseky")
