"""CUDA C of this package: read from its files, compiled for the current device. This module imports without CuPy."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

from ooc_chol.config import cache_directory

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


def compiled_for(architecture: str, text: str) -> Any:
    """Compile CUDA C for an architecture that CuPy cannot name, such as ``sm_90a``, or find it in this user's folder."""
    import cupy as cp

    return _module_of(cp.cuda.Device().id, architecture, text)


@cache
def _module_of(device: int, architecture: str, text: str) -> Any:
    """A module of one device, which is current, from a file named after what was compiled, and how."""
    import cupy as cp
    from cupy_backends.cuda.libs import nvrtc

    options = (*_OPTIONS, f"-arch={architecture}")
    key = sha256(repr((nvrtc.getVersion(), options, text)).encode()).hexdigest()
    folder = _folder()
    path = folder / f"{key}.cubin"
    if not path.exists():
        with NamedTemporaryFile(dir=folder, suffix=".cubin", delete=False) as file:
            file.write(_cubin(text, options))
        Path(file.name).replace(path)
    return cp.RawModule(path=str(path))


@cache
def _folder() -> Path:
    """Folder of this user's compiled kernels; where none can be written, one of this process alone."""
    if (caches := cache_directory()) is not None:
        folder = caches / "kernels"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    private = TemporaryDirectory(prefix="ooc_chol_")
    atexit.register(private.cleanup)
    return Path(private.name)


def _cubin(text: str, options: tuple[str, ...]) -> bytes:
    """Compile CUDA C to machine code."""
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(text, "ooc_chol.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        cubin: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(f"CUDA C was not compiled: {nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    return cubin
