"""Importing ooc_chol needs, and touches, core dependencies only."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Installed before anything else: remembers and refuses every import of a package that belongs to an extra.
REFUSE_EXTRAS = """
import sys

EXTRAS = {
    *("cupy", "nvmath", "pynvml", "matplotlib", "sklearn", "gstools", "torch"),
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

IMPORT_EVERY_MODULE = """
import importlib, pathlib
import ooc_chol

top = pathlib.Path(ooc_chol.__file__).parent
files = [path.relative_to(top.parent).with_suffix("") for path in sorted(top.rglob("*.py"))]
modules = [".".join(path.parts).removesuffix(".__init__") for path in files]
# Their classes are built on those of an extra; importing the packages above them does not import them.
cuda = ("ooc_chol.hardware.cuda", "ooc_chol.kernels.cuda", "ooc_chol.bench.cuda")
modules = [name for name in modules if not name.startswith((*cuda, "ooc_chol.apps.geostat.estimator"))]
assert {"ooc_chol.kernels", "ooc_chol.apps.geostat"} <= set(modules)
for name in modules:
    importlib.import_module(name)
    assert Refuse.asked == [], f"{name} asks for {Refuse.asked}"
"""


@pytest.mark.host
@pytest.mark.parametrize("program", [IMPORT_THE_PACKAGE, IMPORT_EVERY_MODULE], ids=["package", "every module"])
def test_import_asks_for_no_extra(program):
    done = subprocess.run([sys.executable, "-c", REFUSE_EXTRAS + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
