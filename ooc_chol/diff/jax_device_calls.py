"""Calls from compiled programs of JAX to functions of arrays that lie where the program computes: nothing comes to the host.

XLA calls a handler with the addresses of its buffers, which become views: arrays of CuPy on its stream, or of NumPy.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from math import prod
from typing import Any, final
from weakref import WeakValueDictionary

import jax
import numpy as np
from numpy.typing import NDArray

from ooc_chol.diff import call_frames
from ooc_chol.diff.call_frames import Frame, Place
from ooc_chol.diff.pattern import Pattern
from ooc_chol.process.fork_safety import new_lock

#: Name of the handlers, one for each platform, in XLA.
_TARGET = "ooc_chol_call"
#: The last errors of calls, by what XLA was told of them: outside of jit they are raised as they are.
_RAISED: deque[tuple[str, BaseException]] = deque(maxlen=8)


@final
class Call:
    """A function of arrays of NumPy or CuPy, which gives one or a tuple of them; programs name it by its key, and keep it.

    It writes to no argument and keeps none: their memory is XLA's.
    """

    def __init__(self, key: str, function: Callable[..., Any]) -> None:
        self.key, self.function = key, function


_CALLS: WeakValueDictionary[str, Call] = WeakValueDictionary()
_LOCK = new_lock()


def call_of(pattern: Pattern, what: str, function: Callable[..., Any]) -> Call:
    """The call of what is computed with a pattern.

    Keys say it by content: so a program that was compiled in another process calls the same, or nothing.
    """
    key = f"{what} of {pattern.size_text}, {hash(pattern):x}"
    with _LOCK:
        return _CALLS.setdefault(key, Call(key, function))


def lowering(call_for: Callable[..., Call], platform: str) -> Callable[..., Any]:
    """The rule that compiles a primitive, whose parameters name the call, into that call on a platform, "cuda" or "cpu"."""
    compiled = jax.ffi.ffi_lowering(_TARGET)

    def rule(ctx: Any, *operands: Any, **params: Any) -> Any:
        _registered(platform)
        call = call_for(**params)
        ctx.module_context.add_keepalive(call)
        return compiled(ctx, *operands, call=call.key)

    return rule


def finished(function: Callable[..., Any], *operands: Any) -> Any:
    """The result of a compiled function once it is there; what a call within has raised is raised as it is."""
    try:
        with jax.disable_jit(False):  # else the primitive would ask for itself
            return jax.block_until_ready(function(*operands))
    except jax.errors.JaxRuntimeError as failure:
        told = str(failure)
        kept = next((each for each in reversed(list(_RAISED)) if each[0] in told), None)
        if kept is None:
            raise
    with suppress(ValueError):  # another thread has met the same
        _RAISED.remove(kept)
    raise kept[1]


def is_on_gpu(*operands: Any) -> bool:
    """Tell whether an array lies on a GPU."""
    return any(
        device.platform in ("gpu", "cuda") for each in operands if isinstance(each, jax.Array) for device in each.devices()
    )


@cache
def has_cupy() -> bool:
    """Tell whether the package computes on CUDA devices."""
    try:
        import_module("ooc_chol.kernels.cuda.exchange")
    except ImportError:
        return False
    return True


def has_cudss() -> bool:
    """Tell whether cuDSS is installed, and what calls it."""
    return has_cupy() and bool(import_module("ooc_chol.kernels.cuda.direct").has_cudss())


@cache
def _registered(platform: str) -> Any:
    """The handler of a platform, which XLA knows from then on."""
    compute = {"cpu": _on_the_host, "cuda": _on_a_gpu}[platform]
    made = call_frames.handler(compute, _noted)
    capsule = jax.ffi.pycapsule(ctypes.cast(made, ctypes.c_void_p).value)
    jax.ffi.register_ffi_target(_TARGET, capsule, platform={"cpu": "cpu", "cuda": "CUDA"}[platform])
    return made


def _on_the_host(frame: Frame) -> None:
    _run(frame, _viewed)


def _on_a_gpu(frame: Frame) -> None:
    exchange = import_module("ooc_chol.kernels.cuda.exchange")
    device = call_frames.device(frame)
    with exchange.on_stream(device, call_frames.stream(frame)):
        _run(frame, partial(exchange.viewed, device))


def _run(frame: Frame, viewed: Callable[[Place], Any]) -> None:
    """Call the function, and write what it gives."""
    key = call_frames.attribute(frame, "call")
    call = _CALLS.get(key)
    if call is None:
        raise LookupError(f"a compiled function computes {key}, but nobody has that pattern any more: compile it again")
    given = [viewed(place) for place in call_frames.arguments(frame)]
    found = call.function(*given)
    for place, array in zip(call_frames.results(frame), found if isinstance(found, tuple) else (found,), strict=True):
        if array.shape != place.shape:
            raise ValueError(f"{key} has shape {array.shape}, but {place.shape} was compiled")
        viewed(place)[...] = array


def _viewed(place: Place) -> NDArray[Any]:
    """A view of the host's memory."""
    size = prod(place.shape)
    if not size:
        return np.empty(place.shape, place.dtype)
    memory: Any = (ctypes.c_char * (size * place.dtype.itemsize)).from_address(place.address)
    return np.frombuffer(memory, place.dtype).reshape(place.shape)


def _noted(error: BaseException) -> str:
    """Keep an error, without the frames that hold arrays, and say what XLA is told of it."""
    text = f"{type(error).__name__}: {error}"
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    _RAISED.append((text, error))
    return text
