"""Tensors in files: ``.npy``, ``.npz`` and NetCDF, and masks of what is observed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.io import netcdf_file, netcdf_variable

import ooc_chol as oc
import ooc_chol.toolbox as tb

_MARK = "ooc_chol imputed tensor"
_NETCDF = (".nc", ".nc3", ".cdf")
_ENDINGS = (".npy", ".npz", *_NETCDF)
#: First bytes of NetCDF of version 3, and of version 4, which is HDF5.
_MAGIC_3, _MAGIC_4 = (b"CDF\x01", b"CDF\x02"), b"\x89HDF"
#: What SciPy and netCDF4 raise where a file ends too early or holds nonsense.
_DAMAGED = (IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError)
#: Most bytes of a compressed tensor for each byte of its file, and those that need no such reason.
_MOST_GROWTH, _SMALL = 50, 64 << 20
#: Most bytes of a line of a mask in text.
_LINE_BYTES = 1 << 24
#: What NetCDF of version 3 holds where nothing was written, by the type; bytes have no such number.
_UNWRITTEN = {"i2": -32767, "i4": -2147483647, "f4": 9.969209968386869e36, "f8": 9.969209968386869e36}
#: Types of numbers in NetCDF of version 3, most bytes of a variable that SciPy writes, and names that there may be.
_TYPES_3, _MOST_BYTES_3 = ("i1", "i2", "i4", "f4", "f8"), (1 << 31) - 4
_NAME_3 = re.compile(r"[A-Za-z0-9_\x80-\U0010ffff]([^/\x00-\x1f\x7f]*[^/\x00-\x20\x7f])?")
#: Largest whole number such that it and all smaller ones are exact in float64.
_MOST_WHOLE = 2**53
#: Names of the axes of a tensor, where a file has none.
_AXES = ("vertex", "row", "column")

#: Files that a new tensor may replace: ``.npz`` and NetCDF of ours; arrays have no mark.
TENSORS = tb.FileKind("imputed tensor of ooc_chol", _MARK.encode(), anywhere=True, endings=_ENDINGS)


@final
@dataclass(frozen=True, eq=False, repr=False)
class TensorFile:
    """A tensor as a file has it.

    Parameters
    ----------
    tensor : (N, m, n) array
        float32, float64 or whole numbers, NaN where NetCDF has a gap; of a ``.npy`` file a memory map.
    mask : (N,) or (N, m, n) bool array, or None
        Mask of observed values, where the file says so by an array ``mask``.
    name : str
        Name of the variable, ``"tensor"`` where the file has none.
    axes : tuple of str
        Names of its three axes.
    attributes : mapping of str to str
        Attributes of the variable in NetCDF, such as its units.
    """

    tensor: NDArray[Any]
    mask: NDArray[np.bool_] | None = None
    name: str = "tensor"
    axes: tuple[str, ...] = _AXES
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        facts: dict[str, object] = {"tensor": self.tensor, "mask": self.mask, "name": self.name, "axes": self.axes}
        return tb.one_line(self, facts)


def read_tensor(path: str | os.PathLike[str], *, variable: str | None = None) -> TensorFile:
    """A tensor in a file; its first axis is over the vertices of a graph.

    Parameters
    ----------
    path : str or PathLike
        ``.npy``, which is mapped and not read; ``.npz``, in which an array ``mask`` says what is observed; or NetCDF (``.nc``),
        where the numbers are those that packing and fill values mean. netCDF4 reads version 4.
    variable : str, optional
        Which array of an ``.npz`` or NetCDF file; by default the only one with three axes.

    Returns
    -------
    TensorFile
        The tensor, and what the file says of it.

    Raises
    ------
    ValueError
        The file is not as its ending says, has no such variable, or several with three axes.
    TypeError
        It holds other numbers than float32, float64 or whole ones.
    OSError
        It is no regular file, or cannot be read.
    BudgetError
        There is no memory for it.
    OocCholError
        It is NetCDF 4, and netCDF4 is not installed.

    Notes
    -----
    Of an ``.npz`` file only the tensor and its mask are read. A compressed tensor of more than 64 MiB that has more than 50 times
    the bytes of its file is refused: give it as ``.npy``.

    Examples
    --------
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(
    ...         Path(folder, "a.npz"),
    ...         x=np.zeros((3, 2, 2)),
    ...         mask=np.array([True, False, True]),
    ...     )
    ...     print(read_tensor(Path(folder, "a.npz")))
    TensorFile(tensor=<3 x 2 x 2 float64>, mask=[True, False, True], name='x', axes=('vertex', 'row', 'column'))
    """
    file = Path(path)
    tb.input_file(file).close()  # raises what is wrong with its name
    readers: dict[str, Callable[[Path, str | None], TensorFile]] = {
        ".npy": _read_npy,
        ".npz": _read_npz,
        **dict.fromkeys((*_NETCDF, ".nc4"), _read_netcdf),
    }
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise ValueError(f"{file}: tensors are read from {', '.join(readers)}; give a name that ends in one of these")
    found = reader(file, variable)
    if found.tensor.ndim != 3 or not found.tensor.size:
        raise ValueError(f"{file}: {found.name} has shape {found.tensor.shape}; a graph-tensor has (N, m, n), N vertices first")
    if not found.tensor.dtype.isnative:
        tb.check_room(found.tensor.nbytes, f"memory for {found.name} of {file}", "give it in the byte order of this machine")
        found = replaced(found, tensor=found.tensor.astype(found.tensor.dtype.newbyteorder("=")))
    if found.tensor.dtype not in (np.float32, np.float64) and found.tensor.dtype.kind not in "iu":
        advice = "convert it with astype(numpy.float32), and give what is missing as NaN or by a mask"
        raise TypeError(
            f"{file}: {found.name} holds {found.tensor.dtype}, but tensors are float32, float64 or integers: {advice}"
        )
    return found


def read_mask(path: str | os.PathLike[str], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Mask of observed entries, from a file.

    Parameters
    ----------
    path : str or PathLike
        A ``.npy`` array, or text with a number in each line: 1 or True where a slice, or an entry, is observed, else 0.
    shape : (int, int, int)
        That of the tensor.

    Returns
    -------
    (N,) or (N, m, n) bool array
        True where observed.

    Raises
    ------
    ValueError
        It holds other numbers, or has another shape.
    OSError
        It cannot be read.
    """
    file = Path(path)
    given = tb.input_npy(file, mapped=True) if file.suffix.lower() == ".npy" else _numbers(file)
    if given.shape not in (shape, shape[:1]):
        raise ValueError(f"{file}: the mask has shape {given.shape}; give ({shape[0]},), one for each slice, or {shape}")
    if given.dtype.kind not in "biuf" or not np.isin(given, (0, 1)).all():
        raise ValueError(f"{file}: a mask holds 1 where the tensor is observed and 0 elsewhere, and no other number")
    return np.array(given, bool)


def _numbers(file: Path) -> NDArray[Any]:
    """Numbers in text."""
    try:
        return np.loadtxt(tb.input_lines(file, _LINE_BYTES), ndmin=1)
    except ValueError as error:
        raise ValueError(f"{file} holds no mask ({error}); give .npy, or a line with 0 or 1 for each slice") from error


def write_tensor(
    path: str | os.PathLike[str],
    tensor: NDArray[Any],
    *,
    mask: NDArray[np.bool_] | None = None,
    like: TensorFile | None = None,
    history: tuple[tb.LambdaRow, ...] = (),
    replace: bool = False,
) -> None:
    """Write a tensor to a file, which appears complete or not at all.

    Parameters
    ----------
    path : str or PathLike
        ``.npy``: the tensor alone; ``.npz``: with the mask, and lambda, steps, mean rank and change of the history; or NetCDF
        (``.nc``, ``.nc3``, ``.cdf``) of version 3, under the names of ``like``.
    tensor : (N, m, n) array
        Tensor that :func:`ooc_chol.impute` returned.
    mask : (N,) or (N, m, n) bool array, optional
        Mask of observed values.
    like : TensorFile, optional
        The file that it came from.
    history : tuple of LambdaRow
        Report of the call.
    replace : bool
        Replace a file that is none of ours, too; ``.npy`` files have no mark.

    Raises
    ------
    ValueError
        The name ends in something else, or NetCDF has no such name, number or size.
    TypeError
        NetCDF has no such numbers.
    OSError
        The file cannot be written; as ``OutputError``, it exists and is none of ours.
    """
    file = Path(path)
    check_tensor_name(file)
    tensor = tb.plain_array("tensor", tensor, gaps_as_nan=True)
    mask = None if mask is None else tb.plain_array("mask", mask)
    source = TensorFile(tensor) if like is None else replaced(like, tensor=tensor)
    check_fits(file, tensor.dtype, source)
    with tb.output_file(file, kind=TENSORS, replace=replace) as part:
        if file.suffix.lower() == ".npy":
            with part.open("wb") as stream:
                np.save(stream, tensor)
        elif file.suffix.lower() == ".npz":
            _write_npz(part, tensor, mask, history)
        else:
            _write_netcdf(part, tensor, mask, source)


def check_tensor_name(path: Path) -> None:
    """Find out early whether a tensor can be written under this name."""
    if path.suffix.lower() not in _ENDINGS:
        raise ValueError(f"{path}: tensors are written as {', '.join(_ENDINGS)}; give a name that ends in one of these")


def check_fits(path: Path, dtype: np.dtype[Any], like: TensorFile) -> None:
    """Find out early whether a file of this name can hold a tensor of this type, with the shape and names of another."""
    if path.suffix.lower() not in _NETCDF:
        return
    for name in (like.name, *like.axes):
        if not _NAME_3.fullmatch(name):
            raise ValueError(f"{path}: NetCDF has no name such as {name!r:.40}; rename it, or write .npz")
    if len(set(like.axes)) < len(set(zip(like.axes, like.tensor.shape, strict=True))):
        raise ValueError(f"{path}: axes {', '.join(like.axes)} of {like.tensor.shape} share a name, and no size; rename one")
    if (nbytes := like.tensor.size * _type_3(dtype).itemsize) > _MOST_BYTES_3:
        raise ValueError(f"{path}: the tensor takes {nbytes} bytes, and NetCDF of version 3 holds {_MOST_BYTES_3}; write .npz")


def _type_3(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The first type of NetCDF of version 3 that holds all numbers of another, or float64 for whole ones."""
    for each in _TYPES_3:
        if np.can_cast(dtype, each):
            return np.dtype(each)
    raise TypeError(f"NetCDF of version 3 has no numbers such as {dtype}; give float32, float64 or whole numbers, or write .npz")


# reading


def _read_npy(file: Path, variable: str | None) -> TensorFile:
    if variable is not None:
        raise ValueError(f"{file}: a .npy file has one array, without a name; leave out the variable {variable!r:.40}")
    return TensorFile(tb.input_npy(file, mapped=True))


def _read_npz(file: Path, variable: str | None) -> TensorFile:
    def choose(headers: Mapping[str, Any]) -> list[str]:
        """The tensor, and its mask where there is one."""
        tensors = [name for name, header in headers.items() if len(header.shape) == 3 and name != "mask"]
        name = _one_of(file, tensors, [*headers], variable)
        mask, shape = headers.get("mask"), headers[name].shape
        if mask is not None and (mask.dtype != np.bool_ or mask.shape not in (shape, shape[:1])):
            raise ValueError(f"{file}: mask holds {mask.dtype} of shape {mask.shape}; give bool, {shape[:1]} or as {name}")
        chosen = [name] if mask is None or name == "mask" else [name, "mask"]
        _check_growth(file, sum(headers[each].nbytes for each in chosen))
        return chosen

    name, *rest = found = tb.input_npz(file, choose)
    return TensorFile(found[name], found["mask"] if rest else None, name)


def _check_growth(file: Path, nbytes: int) -> None:
    """Refuse what takes far more memory than the bytes of its file justify."""
    size = file.stat().st_size
    if nbytes > max(_SMALL, _MOST_GROWTH * size):
        raise ValueError(f"{file}: the tensor takes {nbytes} bytes, but the file has {size}; give it as .npy, which is mapped")


def _one_of(file: Path, suited: list[str], known: list[str], wanted: str | None) -> str:
    """The variable that was asked for, or the only one that suits."""
    if wanted is not None:
        if wanted not in known:
            raise ValueError(f"{file} has no variable {wanted!r:.40}; it has {', '.join(known) or 'none'}")
        return wanted
    if len(suited) != 1:
        what = f"{len(suited)} variables with three axes ({', '.join(suited)})" if suited else "no variable with three axes"
        raise ValueError(f"{file} has {what}: give the name of one (variable) of {', '.join(known) or 'none'}")
    return suited[0]


def _read_netcdf(file: Path, variable: str | None) -> TensorFile:
    with tb.input_file(file) as stream:
        magic = stream.read(4)
    if magic in _MAGIC_3:
        try:
            content = netcdf_file(file, "r", mmap=False)
        except (*_DAMAGED, OSError, MemoryError) as error:  # the last two of places and sizes that no file has
            if isinstance(error, MemoryError):
                tb.check_room(file.stat().st_size, f"memory for {file}", "give it as .npy, which is mapped")
            raise ValueError(f"{file} is a damaged NetCDF file: {error}; copy it again") from error
    elif magic == _MAGIC_4:
        if find_spec("netCDF4") is None:
            raise oc.OocCholError(f"{file}: NetCDF 4 is read by netCDF4, which is not installed: {tb.install_hint('io')}")
        with tb.guarded_imports(blas=False):
            import netCDF4

        try:
            content = netCDF4.Dataset(file)
        except OSError as error:
            raise ValueError(f"{file} is a damaged NetCDF file: {error}; copy it again") from error
    else:
        raise ValueError(f"{file} is no NetCDF file of version 3 or 4: it begins with {magic!r}")
    with content:
        return _of_netcdf(file, {_utf8(name): each for name, each in content.variables.items()}, variable)


def _of_netcdf(file: Path, variables: Mapping[str, Any], wanted: str | None) -> TensorFile:
    """A variable in the byte order of this machine, NaN where it has gaps."""
    suited = [name for name, each in variables.items() if len(each.dimensions) == 3]
    name = _one_of(file, suited, [*variables], wanted)
    found = variables[name]
    nbytes = prod(found.shape) * np.dtype(np.float64).itemsize
    _check_growth(file, nbytes)
    tb.check_room(nbytes, f"memory for {name} of {file}", "give it as .npy, which is mapped")
    try:
        values: Any = np.ma.asarray(_unpacked(found) if isinstance(found, netcdf_variable) else found[...])
    except _DAMAGED as error:
        raise ValueError(f"{file}: the variable {name} is damaged: {error}; copy the file again") from error
    if values.dtype.kind == "f":
        values = np.ma.filled(values, np.nan)
    elif np.ma.is_masked(values):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = np.asarray(values)
    texts = {key: getattr(found, key, "") for key in ("units", "long_name", "standard_name")}
    attributes = {
        key: text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for key, text in texts.items() if text
    }
    return TensorFile(array.astype(array.dtype.newbyteorder("=")), None, name, tuple(map(_utf8, found.dimensions)), attributes)


def _utf8(name: str) -> str:
    """A name whose bytes SciPy takes for Latin letters."""
    try:
        return name.encode("latin1").decode()
    except UnicodeError:
        return name


def _unpacked(found: netcdf_variable) -> Any:
    """Numbers of a variable of version 3, masked where it has gaps as for netCDF4: by fill values, written or not, and ranges."""
    given: Mapping[str, Any] = found._attributes
    raw = np.asarray(found.data)
    raw = raw.astype(raw.dtype.newbyteorder("="))
    if raw.dtype.kind not in "if":
        return raw

    def numbers(name: str) -> NDArray[Any]:
        """An attribute in the type of the variable; nothing where it is not there, or is not such numbers."""
        said = np.atleast_1d(given.get(name, ()))
        with np.errstate(all="ignore"):
            own = said.astype(raw.dtype) if said.dtype.kind in "if" else raw[:0].ravel()
        return own if len(own) and np.allclose(own, said, equal_nan=True) else own[:0]

    bounds = numbers("valid_range")
    least, most = (bounds[:1], bounds[1:]) if len(bounds) == 2 else (numbers("valid_min")[:1], numbers("valid_max")[:1])
    kind = raw.dtype.str[1:]
    unwritten = np.array([_UNWRITTEN[kind]] if kind in _UNWRITTEN and "_FillValue" not in given else [], raw.dtype)
    gaps = np.isin(raw, np.concatenate([unwritten, numbers("_FillValue"), numbers("missing_value")]))
    for outside in (*(raw < each for each in least), *(raw > each for each in most)):
        gaps |= outside
    values = np.ma.masked_array(raw, gaps if gaps.any() else np.ma.nomask)
    if "scale_factor" in given:
        values = values.astype(np.float64) * given["scale_factor"]
    return values.astype(np.float64) + given["add_offset"] if "add_offset" in given else values


# writing


def _write_npz(part: Path, tensor: NDArray[Any], mask: NDArray[np.bool_] | None, history: tuple[tb.LambdaRow, ...]) -> None:
    arrays: dict[str, NDArray[Any]] = {"tensor": tensor}
    if mask is not None:
        arrays["mask"] = mask
    if history:
        arrays |= {name: np.array([getattr(row, name) for row in history]) for name in ("lam", "steps", "mean_rank", "change")}
    arrays["format"] = np.frombuffer(_MARK.encode(), np.uint8)  # last: near the end it is looked for
    with part.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _write_netcdf(part: Path, tensor: NDArray[Any], mask: NDArray[np.bool_] | None, like: TensorFile) -> None:
    """NetCDF of version 3 with 64-bit offsets, which every program that knows NetCDF reads."""
    name, *axes = (each.encode().decode("latin1") for each in (like.name, *like.axes))  # SciPy's way to write the bytes of UTF-8
    dtype = _type_3(tensor.dtype)
    if tensor.dtype.itemsize == 8 and tensor.dtype.kind in "iu" and max(int(tensor.max()), -int(tensor.min())) > _MOST_WHOLE:
        raise ValueError("the tensor has whole numbers beyond 2^53, which NetCDF of version 3 does not hold; write .npz")
    with netcdf_file(part, "w", version=2) as content:
        content.source = _MARK.encode()
        for axis, size in dict(zip(axes, tensor.shape, strict=True)).items():  # two axes may share a name, and then a size
            content.createDimension(axis, size)
        if mask is not None:
            flags = content.createVariable("is_observed" if name == "observed" else "observed", "b", axes[: mask.ndim])
            flags[...] = mask.astype(np.int8)
            flags.long_name = b"1 where observed, 0 where imputed"
        made = content.createVariable(name, dtype, axes)
        made[...] = tensor
        for key, text in like.attributes.items():
            setattr(made, key, text.encode())
