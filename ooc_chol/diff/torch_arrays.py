"""Memory of torch tensors as arrays of NumPy or CuPy and back, without copies; on GPUs on torch's current stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound=type)


def uncompiled(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Keep ``torch.compile`` out of a function: it would take arrays of NumPy for tensors, and locks for its own.

    ``torch.compiler.disable`` is asked for when a compiler comes by, since it imports the compiler, which takes a second.
    """

    @wraps(function)
    def call(*args: _Given.args, **options: _Given.kwargs) -> _Result:
        if torch.compiler.is_dynamo_compiling():  # never but in what the compiler reads
            left_alone: Callable[_Given, _Result] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
            return left_alone(*args, **options)
        return function(*args, **options)

    own: Any = call
    own.__code__ = own.__code__.replace(co_name=function.__name__)  # the compiler counts what it made of each code
    return call


def uncompiled_methods(of: _Class) -> _Class:
    """The same for all methods of a class; properties that compute something say it themselves."""
    for name, member in list(vars(of).items()):
        if isinstance(member, classmethod | staticmethod):
            setattr(of, name, type(member)(uncompiled(member.__func__)))
        elif isinstance(member, FunctionType):
            setattr(of, name, uncompiled(member))
    return of


def applied(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Apply a function of arrays to tensors of one device: tensors for arrays, anything else as it is.

    Arrays are views of the tensors' memory; only a tensor that is not laid out row by row is copied.
    """
    if tensors[0].device.type == "cpu":
        arrays = [_row_by_row(tensor).numpy() for tensor in tensors]
        return _each(function(*arrays), lambda array: torch.from_numpy(_own(array, arrays)))
    return _applied_on_gpu(function, tensors)


def _applied_on_gpu(function: Callable[..., Any], tensors: tuple[Tensor, ...]) -> Any:
    """The same in a GPU's memory."""
    exchange = import_module("ooc_chol.kernels.cuda.exchange")
    device = tensors[0].device

    def array_of(tensor: Tensor) -> Any:
        """A view of a tensor; nothing has no address, so that no entries are made anew."""
        if not tensor.numel():
            return exchange.empty(tuple(tensor.shape), np.dtype(str(tensor.dtype).removeprefix("torch.")))
        return exchange.taken(_row_by_row(tensor).__dlpack__(stream=exchange.ONE_STREAM))

    def tensor_of(array: Any) -> Tensor:
        if not array.size:
            return torch.empty(array.shape, dtype=getattr(torch, array.dtype.name), device=device)
        tensor: Tensor = from_dlpack(exchange.handed(array))
        return tensor

    with torch.cuda.device(device), exchange.on_stream(device.index, torch.cuda.current_stream(device).cuda_stream):
        arrays = [array_of(tensor) for tensor in tensors]
        return _each(function(*arrays), lambda array: tensor_of(array.copy() if _is_shared(array, arrays) else array))


def on_host(tensor: Tensor) -> NDArray[Any]:
    """The numbers of a tensor as an array of NumPy, which autograd does not follow; within ``torch.func``, too."""
    found: list[NDArray[Any]] = []
    _Read.apply(found.append, tensor.detach())  # type: ignore[no-untyped-call]
    return found[0]


@final
@uncompiled_methods
class _Read(torch.autograd.Function):
    """Reads a tensor: torch hands it over without what its transforms have wrapped around."""

    @staticmethod
    def forward(take: Callable[[NDArray[Any]], None], tensor: Tensor) -> Tensor:
        """Nothing; ``take`` gets the numbers."""
        take(tensor.cpu().numpy())
        return tensor.new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], take: Any, tensor: Tensor) -> tuple[Tensor, None]:
        """The same of what is not in the batch."""
        if in_dims[1] is not None:
            raise NotImplementedError(
                "vmap gives a batch of matrices, each with places of its own: make the pattern outside, and vmap over "
                "CSR(values, pattern)"
            )
        found: Tensor = _Read.apply(take, tensor)  # type: ignore[no-untyped-call]
        return found, None


def _row_by_row(tensor: Tensor) -> Tensor:
    """A tensor as its memory has it: in rows, and with its signs, which torch may keep apart."""
    return tensor.detach().resolve_neg().contiguous()


def _each(result: Any, tensor_of: Callable[[Any], Tensor]) -> Any:
    """Arrays as tensors, in tuples too."""
    if isinstance(result, tuple):
        return tuple(_each(part, tensor_of) for part in result)
    return tensor_of(result) if hasattr(result, "dtype") and hasattr(result, "shape") else result


def _own(array: Any, arrays: list[Any]) -> Any:
    """An array that torch takes, shares no memory with those given, and may be written to: autograd takes results for new.

    torch has no strides below 0, which for NumPy are in order, row by row, along an axis of one number.
    """
    made = np.asarray(array)
    is_taken = made.flags.writeable and all(stride >= 0 for stride in made.strides)
    return made if is_taken and not any(np.may_share_memory(made, one) for one in arrays) else made.copy()


def _is_shared(array: Any, arrays: list[Any]) -> bool:
    """Tell whether a result on a GPU is one of the arrays given, or a part of one."""
    first = array.data.ptr
    return any(one.data.ptr <= first < one.data.ptr + one.nbytes for one in arrays)
