"""Rates of this machine, by which plans are made: of kernels for tiles, and of passes over sparse matrices.

``oc.rates.measure_rates(512)`` measures the first ones, and ``oc.rates.measure_pass_rates()`` the others; later plans have them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ooc_chol.dense.rates.measuring import measure_rates as measure_rates
    from ooc_chol.sparse.pass_measuring import measure_pass_rates as measure_pass_rates
    from ooc_chol.sparse.pass_rates import PassRates as PassRates

#: Public names by the module that is imported when one of them is first asked for.
_NAMES = {
    "dense.rates.measuring": ("measure_rates",),
    "sparse.pass_measuring": ("measure_pass_rates",),
    "sparse.pass_rates": ("PassRates",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> object:
    """Import a public name."""
    from ooc_chol.process.public_names import public_name

    value = globals()[name] = public_name(__name__, _MODULE_OF, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
