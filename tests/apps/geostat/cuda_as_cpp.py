"""What CUDA C needs to be compiled as C++ of one thread."""

from __future__ import annotations

import ctypes

import numpy as np

#: What C++ needs to run a kernel entry by entry.
ON_THE_HOST = """
#include <algorithm>
#include <cmath>
#include <cstring>
#define __device__
#define __forceinline__ inline
#define __global__
using std::max; using std::min;
struct Place { int x, y; };
static Place blockIdx, threadIdx;
static const Place blockDim = {1, 1};
struct double2 { double x, y; };
template <class T> static T __ldg(const T* p) { return *p; }
static long long bits(double x) { long long to; std::memcpy(&to, &x, 8); return to; }
static int __double2hiint(double x) { return (int)(bits(x) >> 32); }
static int __double2loint(double x) { return (int)bits(x); }
static double __hiloint2double(int high, int low) {
    const long long both = (long long)high << 32 | (unsigned)low; double to; std::memcpy(&to, &both, 8); return to; }
extern "C" void choose_entry(int row, int column) { blockIdx.y = row; blockIdx.x = column; }
"""
C_TYPES = {np.float64: ctypes.c_double, np.int32: ctypes.c_int}
