"""Memory that this process may still take: the machine's, that of its memory control groups, and its own limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ooc_chol.process.address_space import Limit, tightest_limit

#: What Linux tells of this process and of the machine's memory.
_PROCESS, _MACHINE = Path("/proc/self"), Path("/proc/meminfo")
#: From here on version 1 means that there is no limit: the largest multiple of a page in 63 bits, whatever the page.
_NO_LIMIT = 1 << 62


class ControlGroup(NamedTuple):
    """A memory control group of Linux, of either version, in which this process is, itself or by one below it."""

    folder: Path  #: Where its files are
    version: int  #: 1 or 2

    def limit(self) -> int | None:
        """Most bytes that its processes and their page cache may take together; None without a limit."""
        number = _number(self.folder / ("memory.limit_in_bytes" if self.version == 1 else "memory.max"))
        return None if number is None or number >= _NO_LIMIT else number

    def free_bytes(self) -> int | None:
        """Bytes below the limit, with those of cached files, which make room when they are asked to; None without a limit."""
        limit = self.limit()
        used = _number(self.folder / ("memory.usage_in_bytes" if self.version == 1 else "memory.current"))
        if limit is None or used is None:
            return None
        return max(0, limit - max(0, used - self._cached_bytes()))

    def _cached_bytes(self) -> int:
        """Bytes of pages of files in memory, of this group and those below it."""
        prefix = "total_" if self.version == 1 else ""
        names = (f"{prefix}active_file", f"{prefix}inactive_file")
        return sum(_fields(self.folder / "memory.stat", " ").get(name, 0) for name in names)


def control_groups(process: Path = _PROCESS) -> list[ControlGroup]:
    """The memory control groups that bound this process, its own first, of each version that is mounted."""
    found: list[ControlGroup] = []
    try:
        places = (process / "cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return found
    mounts = _mounts(process)
    for line in places:
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        version = 2 if number == "0" and not controllers else 1
        if version in mounts and (version == 2 or "memory" in controllers.split(",")):
            found += _upwards(*mounts[version], place, version)
    return found


def _upwards(mount: Path, root: str, place: str, version: int) -> Iterator[ControlGroup]:
    """The group at ``place``, and those above it as far as they are in sight at ``mount``, which shows what is below ``root``."""
    inside = os.path.relpath(place, root) if root != "/" else place.lstrip("/")
    if inside.startswith("..") or not (mount / inside).is_dir():
        inside = ""  # the mount shows the group of a container, whose processes see another name of it
    folder = mount / inside
    while True:
        yield ControlGroup(folder, version)
        if folder == mount:
            return
        folder = folder.parent


@cache
def _mounts(process: Path) -> dict[int, tuple[Path, str]]:
    """By version, where memory control groups are mounted, and the group that is the root of what is seen there."""
    found: dict[int, tuple[Path, str]] = {}
    try:
        lines = (process / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return found
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, (kind, *_, options) = before.split(), after.split() or [""]
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            root, folder = (_unescaped(field) for field in fields[3:5])
            found.setdefault(2 if kind == "cgroup2" else 1, (Path(folder), root))
    return found


def _unescaped(text: str) -> str:
    """A field of ``mountinfo``, in which spaces and the like are octal numbers."""
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text


def group_limit(process: Path = _PROCESS) -> Limit | None:
    """The control group that leaves least, by its folder's name; None where none has a limit."""
    groups = [(group, group.free_bytes()) for group in control_groups(process)]
    limits = [Limit(f"memory control group {group.folder.name or '/'}", free) for group, free in groups if free is not None]
    return min(limits, key=lambda limit: limit.free_bytes, default=None)


def host_limit() -> Limit:
    """The bound that leaves least host memory for this process: the machine, a control group, or a limit of its own."""
    limits = [Limit("the machine", _free_of_machine()), group_limit(), tightest_limit()]
    return min((limit for limit in limits if limit is not None), key=lambda limit: limit.free_bytes)


def total_bytes() -> int:
    """Bytes of memory of the machine, in use or not; what its control groups allow where that is less."""
    limits = [limit for group in control_groups() if (limit := group.limit()) is not None]
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *limits])


def _free_of_machine() -> int:
    """Linux's MemAvailable; elsewhere half of the machine's memory."""
    available = _fields(_MACHINE, ":").get("MemAvailable")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 if available is None else 1024 * available


def _fields(path: Path, separator: str) -> dict[str, int]:
    """The numbers in a file of names and numbers, one to a line; none where it cannot be read."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    pairs = (line.split(separator, 1) for line in lines if separator in line)
    return {name: int(rest.split()[0]) for name, rest in pairs if rest.split()[:1] and rest.split()[0].isdecimal()}


def _number(path: Path) -> int | None:
    """The number that a file holds; None where it says ``max``, or cannot be read."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
