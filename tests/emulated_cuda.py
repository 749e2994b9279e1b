"""Modules of ``kernels/cuda`` on the host: NumPy in CuPy's place, and their kernels as C++ whose threads take turns."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

from tests.cuda_threads import LAUNCH, ON_THE_HOST
from tests.inside.kernels import modules

ROOT = Path(__file__).resolve().parents[1]

#: What the kernels want beside the shared part.
MORE = r"""
#include <utility>
static bool said[1024];
static int __syncthreads_or(int mine) {
    said[threadIdx.x] = mine;
    __syncthreads();
    int any = 0;
    for (unsigned t = 0; t < blockDim.x; ++t) any |= said[t];
    __syncthreads();
    return any;
}
"""

#: Kernels of any parameters, as the launcher takes them.
CALLED = r"""
template <auto Kernel> struct Call;
template <class... A, void (*Kernel)(A...)> struct Call<Kernel> {
    template <std::size_t... I> static void with(std::index_sequence<I...>) { Kernel(*(const A*)given[I]...); }
    static void run() { with(std::index_sequence_for<A...>()); }
    static unsigned count() { return sizeof...(A); }
    static unsigned bytes(unsigned at) { const unsigned sizes[] = {sizeof(A)...}; return sizes[at]; }
};
#define CALLABLE(name) \
    extern "C" void run_##name(unsigned b, unsigned t, const void* const* a) { launch(Call<name>::run, b, t, a); } \
    extern "C" unsigned count_##name() { return Call<name>::count(); } \
    extern "C" unsigned bytes_##name(unsigned at) { return Call<name>::bytes(at); }
"""
#: The kernels of each module.
KERNELS = {
    "values": ("sums", "wide_sums", "segment_sums", "add_segments", "sampled", "sampled_once", "gather", "scatter"),
    "sweep_cuts": (
        "project",
        "rank",
        "weights_before",
        "sum_chunks",
        "scan_chunks",
        "best_of_chunks",
        "sides_of",
        "weights_across",
        "count_across",
        "list_across",
        "number",
        "rows_inside",
        "notice",
        "join_ends",
        "label",
    ),
}


class Held(np.ndarray):
    """An array with the attributes of CuPy's that ``values.py`` asks for."""

    @property
    def device(self):
        return nullcontext()

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class Current(SimpleNamespace):
    """A device or a stream, which a block makes that of the thread."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return


def held(array):
    """The array as the emulated module takes it."""
    return np.ascontiguousarray(array).view(Held)


class Library:
    """Kernels of one kind; every launch checks number and sizes of its arguments."""

    def __init__(self, path):
        self._library = ctypes.CDLL(str(path))

    def get_function(self, name):
        def launch(grid, block, arguments):
            assert len(grid) == len(block) == 1 and 0 < grid[0] < 2**31 and 0 < block[0] <= 1024 and block[0] % 32 == 0
            assert len(arguments) == getattr(self._library, f"count_{name}")()
            words = [self._word(name, at, each) for at, each in enumerate(arguments)]
            pointers = (ctypes.c_void_p * len(words))(*[word.ctypes.data for word in words])
            getattr(self._library, f"run_{name}")(ctypes.c_uint(grid[0]), ctypes.c_uint(block[0]), pointers)

        return launch

    def _word(self, name, at, given):
        """What a launch hands in: an address, or a number of the parameter's size."""
        if isinstance(given, np.ndarray):
            assert given.flags.c_contiguous
            word = np.array([given.ctypes.data], np.uintp)
        else:
            word = np.array([given], given.dtype)
        assert word.nbytes == getattr(self._library, f"bytes_{name}")(ctypes.c_uint(at))
        return word


class Emulated:
    """``module`` is the one of a name; ``folder`` keeps what is compiled."""

    def __init__(self, folder, name):
        self._folder, self._libraries, self._kernels = folder, {}, KERNELS[name]
        cupy = self._cupy()
        spec = importlib.util.spec_from_file_location(f"emulated_{name}", ROOT / f"ooc_chol/kernels/cuda/{name}.py")
        self.module = importlib.util.module_from_spec(spec)
        before = sys.modules.get("cupy")
        sys.modules["cupy"] = cupy
        try:
            spec.loader.exec_module(self.module)
        finally:
            if before is None:
                del sys.modules["cupy"]
            else:
                sys.modules["cupy"] = before
        self.module.modules = SimpleNamespace(load=self._load)

    def _cupy(self):
        cupy = ModuleType("cupy")
        cupy.__dict__.update({name: getattr(np, name) for name in np.__all__})
        cupy.empty = lambda shape, dtype: self._garbage(shape, dtype)
        cupy.zeros = lambda shape, dtype: np.zeros(shape, dtype).view(Held)
        cupy.full = lambda shape, value, dtype: np.full(shape, value, dtype).view(Held)
        cupy.asarray = lambda x: x.copy().view(Held)
        cupy.asnumpy = lambda x: np.array(x)
        cupy.ascontiguousarray = lambda x: np.ascontiguousarray(x).view(Held)
        cupy.cuda = SimpleNamespace(
            Device=lambda number=0: Current(id=number),
            Stream=lambda non_blocking: Current(synchronize=lambda: None),
            get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
            MemoryPool=lambda: SimpleNamespace(malloc=None, free_all_blocks=lambda: None),
            using_allocator=lambda malloc: nullcontext(),
        )
        return cupy

    def _garbage(self, shape, dtype):
        """New memory, in which nothing that is forgotten goes unseen."""
        array = np.empty(shape, dtype).view(Held)
        array.fill(np.nan if array.dtype.kind == "f" else 77)
        return array

    def _load(self, *names, **defines):
        key = names, tuple(defines.items())
        if key not in self._libraries:
            source = self._folder / f"{len(self._libraries)}.cpp"
            callable_kernels = "".join(f"CALLABLE({name})\n" for name in self._kernels)
            source.write_text(
                ON_THE_HOST + MORE + modules.code(*names, **defines) + LAUNCH + CALLED + callable_kernels, encoding="utf-8"
            )
            path = source.with_suffix(".so")
            options = ["-O1", "-shared", "-Xcompiler", "-fPIC,-w,-ffp-contract=off,-fno-strict-aliasing"]
            ran = subprocess.run(
                ["nvcc", "-std=c++17", *options, "-o", str(path), str(source)], capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, ran.stderr
            self._libraries[key] = Library(path)
        return self._libraries[key]
