"""CUDA kernels compiled as C++ and called by name, a thread block after the other, its threads in turn."""

from __future__ import annotations

import ctypes

import numpy as np

from tests.cuda_threads import LAUNCH

_C_TYPES = {"d": ctypes.c_double, "i": ctypes.c_int, "l": ctypes.c_longlong, "b": ctypes.c_ubyte}


def types_of(signature):
    """A letter for each argument, with a star where it is a pointer."""
    return [letter + "*" * (signature[at + 1 : at + 2] == "*") for at, letter in enumerate(signature) if letter != "*"]


def calls(signatures, words):
    """C++ that launches each kernel by its name."""
    lines = [LAUNCH]
    for name, signature in signatures.items():
        arguments = ", ".join(f"argument<{words[each[0]]}{each[1:]}>({at})" for at, each in enumerate(types_of(signature)))
        lines.append(f"static void call_{name}() {{ {name}({arguments}); }}")
        lines.append(f'extern "C" void run_{name}(unsigned blocks, unsigned threads, const void* const* arguments) {{')
        lines.append(f"    launch(call_{name}, blocks, threads, arguments);\n}}")
    return "\n".join(lines)


def launch(library, name, signature, shape, arguments, compute):
    """Run a kernel on ``shape``, thread blocks and threads; arrays go by address, letter C is of the type of computing."""
    held = [_held(each, given, compute) for each, given in zip(types_of(signature), arguments, strict=True)]
    pointers = (ctypes.c_void_p * len(held))(*[ctypes.addressof(each) for each in held])
    getattr(library, f"run_{name}")(*map(ctypes.c_uint, shape), pointers)


def _held(letter, given, compute):
    if letter[1:]:
        assert isinstance(given, np.ndarray) and given.flags.c_contiguous
        return ctypes.c_void_p(given.ctypes.data)
    if letter == "C":
        return (ctypes.c_float if compute == np.float32 else ctypes.c_double)(given)
    return _C_TYPES[letter](given)
