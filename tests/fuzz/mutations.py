"""Changes to the bytes of a good file: blind ones for every format, and some that know text or JSON."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

#: Makes other bytes of those of a good file.
Mutator: TypeAlias = Callable[[Random, bytes], bytes]

#: Words that stand where a number or name should be.
TOKENS = (
    *("1e400", "-1e400", "1e308", "5e-324", "NaN", "Infinity", "-Infinity", "nan", "inf", "-0.0", "true", "false", "null"),
    *("9" * 400, "-" + "9" * 400, "9" * 5000, "18446744073709551616", "-1", "0", "0x10", "1_000", "1e", '""', '"x"', "[]", "{}"),
    *("[[[]]]", '"\\ud800"', '"\\u0000"', "'", "\x00", "\ufeff", "\u2028", "é", "__import__('os')", "=1+1", "../" * 20),
)
_INTEGERS = (0, 1, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
_MOST_BYTES = 1 << 20


def _span(rng: Random, data: bytes, longest: int = 64) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.randint(1, longest))


def flip_bits(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_bytes(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice((0, 255, 127, 128, rng.randrange(256)))
    return bytes(changed)


def truncate(rng: Random, data: bytes) -> bytes:
    return data[: rng.choice((0, 1, 4, 8, rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))]


def extend(rng: Random, data: bytes) -> bytes:
    return data + rng.choice((b"\0", b"\n", b"\xff" * 16, data, data[-64:], rng.randbytes(rng.randint(1, 4096))))


def remove(rng: Random, data: bytes) -> bytes:
    start, stop = _span(rng, data)
    return data[:start] + data[stop:]


def repeat(rng: Random, data: bytes) -> bytes:
    start, stop = _span(rng, data)
    return data[:stop] + data[start:stop] * rng.choice((1, 2, 64, 1024)) + data[stop:]


def swap(rng: Random, data: bytes) -> bytes:
    size = rng.choice((1, 4, 8, 64, 512))
    first, second = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    second = max(second, first + size)
    return (
        data[:first]
        + data[second : second + size]
        + data[first + size : second]
        + data[first : first + size]
        + data[second + size :]
    )


def zero(rng: Random, data: bytes) -> bytes:
    start, stop = _span(rng, data, rng.choice((8, 64, 512, 4096)))
    return data[:start] + rng.choice((b"\0", b"\xff")) * (stop - start) + data[stop:]


def put_integer(rng: Random, data: bytes) -> bytes:
    form = rng.choice("BHIQ")
    packed = struct.pack(rng.choice("<>") + form, rng.choice(_INTEGERS) & (256 ** struct.calcsize(form) - 1))
    start = rng.randrange(max(1, min(len(data), rng.choice((64, 1024, 1 << 30)))))
    return data[:start] + packed + data[start + len(packed) :]


def put_token(rng: Random, data: bytes) -> bytes:
    start, stop = _span(rng, data, 8)
    return data[:start] + rng.choice(TOKENS).encode("utf-8", "surrogatepass") + data[stop if rng.random() < 0.5 else start :]


def nothing_left(rng: Random, data: bytes) -> bytes:
    return rng.choice((b"", b"\n", b"\0" * 4096, rng.randbytes(300), data[:64] + rng.randbytes(300)))


BLIND: tuple[Mutator, ...] = (
    *(flip_bits, flip_bits, set_bytes, set_bytes, truncate, extend, remove, repeat, swap, zero),
    *(put_integer, put_integer, put_token, nothing_left),
)


# text


def encode_otherwise(rng: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(rng.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1", "cp500")), "replace")


def lines_changed(rng: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[at])
        case 2:
            lines.insert(at, rng.choice((b"", b",,,,", b'"', b"\0", b"#", b"\r", b"1,2,3,4,5,6,7,8,9")))
        case 3:
            rng.shuffle(lines)
        case 4:
            lines[at] *= rng.choice((2, 100, 10000))
        case _:
            return rng.choice((b"\r\n", b"\r", b"\x85", b";")).join(lines)
    return b"\n".join(lines)


def number_changed(rng: Random, data: bytes) -> bytes:
    """Another word in the place of one between separators."""
    breaks = [at for at, byte in enumerate(data) if byte in b" ,;:\t\n[]{}()+*~"]
    if not breaks:
        return put_token(rng, data)
    at = rng.randrange(len(breaks))
    stop = breaks[at + 1] if at + 1 < len(breaks) else len(data)
    return data[: breaks[at] + 1] + rng.choice(TOKENS).encode("utf-8", "surrogatepass") + data[stop:]


TEXT: tuple[Mutator, ...] = (encode_otherwise, lines_changed, lines_changed, number_changed, number_changed, number_changed)


# JSON


_MARK = "\u0001mark\u0001"


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a tree of JSON."""
    found, open_ones = [], [tree]
    while open_ones:
        one = open_ones.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else []
        found += [(one, key) for key in keys]
        open_ones += [one[key] for key in keys]
    return found


def _hostile(rng: Random) -> str:
    """A value in the notation of JSON, or nearly."""
    deep = rng.choice((50, 500, 100_000))
    return rng.choice(
        (rng.choice(TOKENS), str(rng.choice(_INTEGERS)), repr(rng.uniform(-1e9, 1e9)), "[" * deep + "]" * deep, '{"a":' * deep)
    )


def json_changed(rng: Random, data: bytes) -> bytes:
    """A value replaced, removed, renamed, doubled or exchanged with another."""
    try:
        tree = json.loads(data)
        places = _places(tree)
        where, key = rng.choice(places)
    except (ValueError, IndexError, RecursionError):
        return put_token(rng, data)
    raw, choice = None, rng.randrange(8)
    if choice < 4:
        where[key], raw = _MARK, _hostile(rng)
    elif choice == 4:
        del where[key]
    elif choice == 5 and isinstance(where, dict):
        where[rng.choice(TOKENS) if rng.random() < 0.5 else key.upper()] = where.pop(key)
    elif choice == 6 and isinstance(where, dict):
        value = json.dumps(where[key])
        where[key], raw = _MARK, f"{_hostile(rng)}, {json.dumps(key)}: {value}"
    else:
        other, its = rng.choice(places)
        where[key] = json.loads(json.dumps(other[its])) if its in other or isinstance(other, list) else None
    try:
        text = json.dumps(tree)
    except RecursionError:  # it was made deep before
        return put_token(rng, data)
    return (text if raw is None else text.replace(json.dumps(_MARK), raw)).encode("utf-8", "surrogatepass")


def json_lines_changed(rng: Random, data: bytes) -> bytes:
    """As :func:`json_changed`, of one line."""
    lines = data.split(b"\n")
    at = rng.randrange(max(1, len(lines) - 1))
    lines[at] = json_changed(rng, lines[at])
    return b"\n".join(lines)


def mutated(rng: Random, data: bytes, mutators: tuple[Mutator, ...]) -> bytes:
    """One to three changes, one after the other; never more than a mebibyte."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(mutators)(rng, data)[:_MOST_BYTES]
    return data
