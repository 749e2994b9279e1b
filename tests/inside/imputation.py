"""Internals of ``ooc_chol.apps.imputation`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.apps.imputation.pictures": ("save_figure", "slices_figure"),
}
MODULES = {
    "files": "ooc_chol.apps.imputation.files",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
