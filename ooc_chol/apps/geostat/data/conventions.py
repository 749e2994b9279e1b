"""What attributes of a NetCDF variable say of its numbers by the CF conventions: packing, gaps, longitude and latitude."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What the NetCDF library leaves where nothing was written, by kind and bytes of the type; single bytes have none.
_DEFAULT_FILL: Mapping[str, float] = {
    "i2": -32767,
    "u2": 65535,
    "i4": -2147483647,
    "u4": 4294967295,
    "i8": -9223372036854775806,
    "u8": 18446744073709551614,
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
}


def decoded(raw: NDArray[Any], attributes: Mapping[str, Any]) -> NDArray[np.float64]:
    """Numbers as they are meant, NaN where there is none.

    CF conventions 1.8, sections 2.5.1 and 8.1. Limits that are floats, of packed integers, are those of the unpacked numbers
    (NetCDF Users Guide, appendix A).
    """
    stored = _stored(raw, attributes)
    scale, offset = _numbers(attributes, "scale_factor"), _numbers(attributes, "add_offset")
    values = stored.astype(np.float64) * (scale[0] if scale.size else 1.0) + (offset[0] if offset.size else 0.0)
    missing = np.isin(stored, _gaps(stored.dtype, attributes))
    for name, place, is_beyond in (("valid_min", 0, np.less), ("valid_max", 1, np.greater)):
        limit = _numbers(attributes, name)[:1] if name in attributes else _numbers(attributes, "valid_range")[place : place + 1]
        if limit.size:
            unpacked = stored.dtype.kind != "f" and limit.dtype.kind == "f"
            missing |= is_beyond(values, limit) if unpacked else is_beyond(stored, _like(limit, stored.dtype))
    return np.where(missing, np.nan, values)


def is_east(unit: str) -> bool:
    """Whether a unit is one of longitude in the conventions: ``degrees_east`` and its spellings."""
    return unit.lower().replace("degrees", "degree").replace("_", "") in ("degreeeast", "degreee")


def is_north(unit: str) -> bool:
    """Whether a unit is one of latitude in the conventions: ``degrees_north`` and its spellings."""
    return unit.lower().replace("degrees", "degree").replace("_", "") in ("degreenorth", "degreen")


def _stored(raw: NDArray[Any], attributes: Mapping[str, Any]) -> NDArray[Any]:
    """The stored numbers in the machine's byte order; version 3 has no unsigned types, but an attribute that means them."""
    native = raw.astype(raw.dtype.newbyteorder("="))
    sign = attributes.get("_Unsigned", "")
    is_unsigned = (sign.decode() if isinstance(sign, bytes) else str(sign)).lower() == "true"
    return native.view(f"u{native.dtype.itemsize}") if is_unsigned and native.dtype.kind == "i" else native


def _gaps(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> NDArray[Any]:
    """Stored numbers that mean that there is none."""
    named = [_numbers(attributes, name) for name in ("_FillValue", "missing_value")]
    default = _DEFAULT_FILL.get(f"{dtype.kind}{dtype.itemsize}")
    if not named[0].size and default is not None:
        named[0] = np.array([default], dtype=dtype)
    return np.concatenate([_like(numbers, dtype) for numbers in named])


def _like(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Numbers of an attribute beside stored ones: rounded as floats are, read as unsigned where those are."""
    if dtype.kind == "f":
        return numbers.astype(dtype)
    is_signed_twin = dtype.kind == "u" and numbers.dtype.kind == "i" and numbers.dtype.itemsize == dtype.itemsize
    return numbers.astype(numbers.dtype.newbyteorder("=")).view(dtype) if is_signed_twin else numbers


def _numbers(attributes: Mapping[str, Any], name: str) -> NDArray[Any]:
    """An attribute as a vector; empty where it is not there or holds no numbers."""
    values = np.ravel(np.asarray(attributes.get(name, ())))
    return values if values.dtype.kind in "iuf" else np.empty(0)
