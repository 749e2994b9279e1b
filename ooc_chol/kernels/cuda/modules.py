"""CUDA C of this package: read from its files, compiled for the current device. This module imports without CuPy."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

#: Options of every compilation.
_OPTIONS = ("--std=c++17",)


def code(*names: str, **defines: float | str) -> str:
    """Read files of CUDA C, each of which may use those before it, behind macros."""
    macros = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    texts = [_text(name) for name in names]
    return "\n".join([macros, *texts] if macros else texts)


@cache
def _text(name: str) -> str:
    return files("ooc_chol.kernels.cuda").joinpath(name).read_text(encoding="utf-8")


def load(*names: str, options: tuple[str, ...] = (), **defines: float | str) -> Any:
    """Compile files of CUDA C for the current device, or find what was compiled for it before."""
    return compiled(code(*names, **defines), *options)


def compiled(text: str, *options: str) -> Any:
    """Compile CUDA C that is no file alone for the current device, or find what was compiled for it before."""
    import cupy as cp

    return _module(cp.cuda.Device().id, text, options)


@cache
def _module(device: int, text: str, options: tuple[str, ...]) -> Any:
    """A module of one device, which is current."""
    import cupy as cp

    return cp.RawModule(code=text, options=(*_OPTIONS, *options))
