"""Frames by which XLA calls functions of other libraries: the structs of its header ``xla/ffi/api/c_api.h``, version 0.3.

Each struct says its size, so that one of a version that knows less is refused. Fields behind those that are named here are
never touched.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any, NamedTuple

import numpy as np

#: Version of the header: a handler says it, or the runtime's own where that is older.
MAJOR, MINOR = 0, 3
#: Numbers that the header gives to kinds of extensions and attributes, to an error, and to types.
_METADATA, _STRING, _INTERNAL = 1, 4, 13
_TYPES: dict[int, np.dtype[Any]] = {11: np.dtype(np.float32), 12: np.dtype(np.float64)}
#: Functions of the runtime in their order, from the first one of ``XLA_FFI_Api`` on.
FUNCTIONS = (
    *("Error_Create", "Error_GetMessage", "Error_Destroy", "Handler_Register", "Stream_Get", "Type_Register"),
    *("ExecutionContext_Get", "State_Set", "State_Get", "DeviceMemory_Allocate", "DeviceMemory_Free", "ThreadPool_Schedule"),
    *("ThreadPool_NumThreads", "Future_Create", "Future_SetAvailable", "Future_SetError", "RunId_Get", "DeviceOrdinal_Get"),
)


class _Extension(Structure):
    _fields_ = (("struct_size", c_size_t), ("type", c_int), ("next", c_void_p))


_HEAD = (("struct_size", c_size_t), ("extension", POINTER(_Extension)))


class _Version(Structure):
    _fields_ = (*_HEAD, ("major", c_int), ("minor", c_int))


class _Metadata(Structure):
    _fields_ = (("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32))


class _MetadataExtension(Structure):
    _fields_ = (("base", _Extension), ("metadata", POINTER(_Metadata)))


class _Buffer(Structure):
    _fields_ = (*_HEAD, ("type", c_int), ("address", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64)))


class _Buffers(Structure):
    """``XLA_FFI_Args`` and ``XLA_FFI_Rets``, whose only kind are buffers."""

    _fields_ = (*_HEAD, ("size", c_int64), ("kinds", POINTER(c_int)), ("buffers", POINTER(POINTER(_Buffer))))


class _Span(Structure):
    _fields_ = (("address", c_void_p), ("size", c_size_t))


class _Attributes(Structure):
    _fields_ = (
        *(*_HEAD, ("size", c_int64), ("kinds", POINTER(c_int))),
        *(("names", POINTER(POINTER(_Span))), ("values", POINTER(POINTER(_Span)))),
    )


class _Api(Structure):
    _fields_ = (*_HEAD, ("version", _Version), ("internal", c_void_p), *((name, c_void_p) for name in FUNCTIONS))


class Frame(Structure):
    """``XLA_FFI_CallFrame``."""

    _fields_ = (
        *(*_HEAD, ("api", POINTER(_Api)), ("context", c_void_p), ("stage", c_int)),
        *(("args", _Buffers), ("rets", _Buffers), ("attrs", _Attributes)),
    )


class _NewError(Structure):
    _fields_ = (*_HEAD, ("message", c_char_p), ("code", c_int))


class _Message(Structure):
    _fields_ = (*_HEAD, ("error", c_void_p), ("message", c_char_p))


class _Stream(Structure):
    _fields_ = (*_HEAD, ("context", c_void_p), ("found", c_void_p))


class _Ordinal(Structure):
    _fields_ = (*_HEAD, ("context", c_void_p), ("found", c_int32))


#: A handler in C: it gives the address of an error, or none.
Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(Frame))
_Function = ctypes.CFUNCTYPE(c_void_p, c_void_p)


class Place(NamedTuple):
    """Where an array lies: dense, row by row."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def handler(compute: Callable[[Frame], None], told: Callable[[BaseException], str]) -> Any:
    """A function of C that computes what a frame asks for; of an error it tells the runtime ``told``, and nothing else."""

    def handle(given: Any) -> int | None:
        frame = given.contents
        try:
            if _is_question(frame):
                return None
            _check(frame)
            compute(frame)
        except BaseException as error:  # which C knows nothing of
            return _error(frame, told(error))
        return None

    return Handler(handle)


def arguments(frame: Frame) -> Iterator[Place]:
    """Arrays that are given."""
    return _places(frame.args)


def results(frame: Frame) -> Iterator[Place]:
    """Arrays that are to be written."""
    return _places(frame.rets)


def attribute(frame: Frame, name: str) -> str:
    """A text that the program was compiled with."""
    found = {_text(frame.attrs.names[at].contents): at for at in range(frame.attrs.size)}
    at = found[name]
    assert frame.attrs.kinds[at] == _STRING
    return _text(frame.attrs.values[at].contents)


def stream(frame: Frame) -> int:
    """Address of the stream on which the program computes."""
    return int(_asked(frame, "Stream_Get", _Stream) or 0)


def device(frame: Frame) -> int:
    """Number of the device on which the program computes."""
    return int(_asked(frame, "DeviceOrdinal_Get", _Ordinal))


def _is_question(frame: Frame) -> bool:
    """Answer the question that comes once, for the version and for what the handler promises: nothing, no replay in graphs."""
    if not (frame.extension and frame.extension.contents.type == _METADATA):
        return False
    metadata = ctypes.cast(frame.extension, POINTER(_MetadataExtension)).contents.metadata.contents
    known = (frame.api.contents.version.major, frame.api.contents.version.minor) if frame.api else (MAJOR, 1)
    metadata.version.major, metadata.version.minor = min((MAJOR, MINOR), known)
    metadata.traits = 0
    return True


def _check(frame: Frame) -> None:
    """Refuse a runtime that speaks another language."""
    api = frame.api.contents
    fits = frame.struct_size >= ctypes.sizeof(Frame) and api.struct_size >= ctypes.sizeof(_Api)
    if api.version.major != MAJOR or not fits:
        found = f"{api.version.major}.{api.version.minor}"
        raise NotImplementedError(
            f"XLA speaks version {found} of its interface for foreign functions, but {MAJOR}.1 to {MAJOR}.{MINOR} are known: "
            "take JAX 0.10"
        )


def _places(given: _Buffers) -> Iterator[Place]:
    for at in range(given.size):
        buffer = given.buffers[at].contents
        if buffer.type not in _TYPES:
            raise TypeError(f"XLA gives an array of its type {buffer.type}, but float32 or float64 were compiled")
        yield Place(buffer.address or 0, tuple(buffer.dims[: buffer.rank]) if buffer.rank else (), _TYPES[buffer.type])


def _text(span: _Span) -> str:
    return ctypes.string_at(span.address, span.size).decode()


def _asked(frame: Frame, function: str, kind: Any) -> Any:
    """Ask a function of the runtime about the frame's context."""
    question = kind(ctypes.sizeof(kind), None, frame.context)
    trouble = _call(frame, function, question)
    if trouble:
        answer = _Message(ctypes.sizeof(_Message), None, trouble)
        _call(frame, "Error_GetMessage", answer)
        text = (answer.message or b"").decode(errors="replace")
        _call(frame, "Error_Destroy", _Message(ctypes.sizeof(_Message), None, trouble))
        raise RuntimeError(f"XLA answers {function} with an error: {text}")
    return question.found


def _error(frame: Frame, text: str) -> int | None:
    """An error of the runtime, which it frees."""
    message = text.replace("\0", "").encode(errors="replace")
    return _call(frame, "Error_Create", _NewError(ctypes.sizeof(_NewError), None, message, _INTERNAL))


def _call(frame: Frame, function: str, given: Structure) -> int | None:
    address: int | None = _Function(getattr(frame.api.contents, function))(ctypes.addressof(given))
    return address
