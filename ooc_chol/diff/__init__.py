"""Differentiable operations on sparse matrices: gradients keep the pattern, and differentiate again.

This module needs NumPy and SciPy alone, its adapters ``ooc_chol.diff.torch`` and ``ooc_chol.diff.jax`` PyTorch and JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ooc_chol.diff.definite import cholesky as cholesky
    from ooc_chol.diff.definite import logdet as logdet
    from ooc_chol.diff.definite import sample as sample
    from ooc_chol.diff.definite import selected_inverse as selected_inverse
    from ooc_chol.diff.eigenvalues import eigsh as eigsh
    from ooc_chol.diff.factor_cache import factorize as factorize
    from ooc_chol.diff.factor_cache import forget_factors as forget_factors
    from ooc_chol.diff.factors import solve as solve
    from ooc_chol.diff.factors import triangular_solve as triangular_solve
    from ooc_chol.diff.functions import add as add
    from ooc_chol.diff.functions import diagonal as diagonal
    from ooc_chol.diff.functions import row_sums as row_sums
    from ooc_chol.diff.functions import scale as scale
    from ooc_chol.diff.functions import spgemm as spgemm
    from ooc_chol.diff.functions import transpose as transpose
    from ooc_chol.diff.functions import tril as tril
    from ooc_chol.diff.functions import triu as triu
    from ooc_chol.diff.ops import vjp as vjp
    from ooc_chol.diff.pattern import Pattern as Pattern
    from ooc_chol.diff.primitives import bilinear as bilinear
    from ooc_chol.diff.primitives import matmul as matmul
    from ooc_chol.diff.primitives import permute as permute
    from ooc_chol.diff.primitives import sampled as sampled

#: Public names by the module that is imported when one of them is first asked for.
_NAMES = {
    "definite": ("cholesky", "logdet", "sample", "selected_inverse"),
    "eigenvalues": ("eigsh",),
    "factor_cache": ("factorize", "forget_factors"),
    "factors": ("solve", "triangular_solve"),
    "functions": ("add", "diagonal", "row_sums", "scale", "spgemm", "transpose", "tril", "triu"),
    "ops": ("vjp",),
    "pattern": ("Pattern",),
    "primitives": ("bilinear", "matmul", "permute", "sampled"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
#: Modules that need packages of their own, imported when they are first asked for.
_ADAPTERS = ("jax", "torch")
__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> object:
    """Import a public name."""
    if name not in _MODULE_OF and name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ooc_chol.process.address_space import guarded_imports

    with guarded_imports():
        if name in _ADAPTERS:
            return import_module(f"{__name__}.{name}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
