"""One door for every file that is read: no call and no command opens a pipe, a device or a damaged file by another way."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ooc_chol as oc
from tests.documents import ROOT
from tests.fuzz import doors

pytestmark = pytest.mark.host

#: Arguments of commands that are no entry of the table, each with the entry by which it is held.
HELD_BY_OTHERS = {
    ("trace", "view", "file"): "trace summary {}",  # it serves the file until it is ended
    ("bench", "imputation", "--edges"): "edge_list",
}


@pytest.mark.parametrize("group", doors.GROUPS)
@pytest.mark.usefixtures("processes")
def test_every_name_is_read_or_refused_with_words(group):
    words = [sys.executable, "-m", "tests.fuzz.doors", group]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert told and "done" in told[-1], f"it ended in {told[-1:]}: {ran.stderr[-2000:]}"
    problems = [f"{one['door']}, {one['case']}: {one['problem']}" for one in told if "problem" in one]
    assert not problems, "\n".join(problems)


def test_the_table_has_every_argument_of_a_command():
    """An argument is held by words of its command in which the name is in its place."""
    entries = {each.name: each.enter for make in doors.GROUPS.values() for each in make()}
    commands = [words for words in entries.values() if isinstance(words, tuple)]
    for *command, argument in doors.path_arguments():
        if (key := (*command, argument)) in HELD_BY_OTHERS:
            assert HELD_BY_OTHERS[key] in entries
            continue
        mine = [words for words in commands if list(words[: len(command)]) == command]
        if argument.startswith("-"):
            assert any(argument in words and words[words.index(argument) + 1] == "{}" for words in mine), key
        else:
            assert any(words[words.index("{}") - 1][:2] != "--" for words in mine), key


# the door itself

#: Functions that open a file by its name, and methods of a path that do.
OPENERS = frozenset((
    "open", "mmread", "netcdf_file", "imread", "ZipFile", "GzipFile", "np.load", "np.loadtxt", "np.genfromtxt", "np.fromfile",
    "np.memmap", "np.lib.format.open_memmap", "os.open", "io.open", "gzip.open", "zipfile.ZipFile", "gzip.GzipFile", "zarr.open",
    "rasterio.open", "netcdf4.Dataset", "netCDF4.Dataset", "h5py.File", "xarray.open_dataset", "pd.read_csv", "pandas.read_csv",
))  # fmt: skip
METHODS = frozenset(("open", "read_text", "read_bytes"))
_READ, _PROC, _MADE = "after a look at what it is", "a file of the system", "a file that the package made"
_OPENED = "what the door has opened"
#: Functions that call them, each with the reason why that is no way around the door.
ALLOWED = {
    "apps/geostat/data/netcdf.py open_netcdf": _READ,
    "apps/geostat/data/rasters.py _read_geotiff": _READ,
    "apps/geostat/estimation/evaluation_log.py __init__": "to add to what was read by the door",
    "apps/imputation/files.py _numbers": _OPENED,
    "apps/imputation/files.py _read_netcdf": _READ,
    "apps/spectral/cli/columns.py _text": _OPENED,
    "apps/spectral/graphs/files.py read_partition": _OPENED,
    "apps/spectral/images/reading.py read_image": _READ,
    "cli/sparse/vectors.py read_vectors": _OPENED,
    "cluster/exchange.py process_begun": _PROC,
    "cluster/tasks.py peak_resident_bytes": _PROC,
    "dense/rates/folders.py _mounts": _PROC,
    "dense/stores/file.py open": "without waiting for a pipe, and refused unless it is regular",
    "dense/stores/verification.py verify_file": _READ,
    "hardware/memory_limits.py control_groups": _PROC,
    "hardware/memory_limits.py _mounts": _PROC,
    "hardware/memory_limits.py _fields": _PROC,
    "memory/pages.py _counts_addresses": _PROC,
    "hardware/memory_limits.py _number": _PROC,
    "files/inputs.py input_file": "the door",
    "extras.py _direct_url": "a file of the installation",
    "files/access.py opened_access": "a descriptor of this process",
    "files/lock_holder.py lock_holder": _PROC,
    "files/lock_holder.py _known_of": _PROC,
    "files/object_folders.py read": "without waiting for a pipe, and no more than there is room for",
    "files/object_folders.py read_into": "without waiting for a pipe, into memory of the caller",
    "files/object_folders.py _write_new": _MADE,
    "files/object_folders.py flush": _MADE,
    "memory/pages.py resident_bytes": _PROC,
    "memory/shared.py _opened": _MADE,
    "memory/sources/behind.py _mapped_file": _PROC,
    "memory/sources/zarr.py _opened": _READ,
    "files/unfinished.py _opened": "not through a link, without waiting, and refused unless it is regular",
    "files/unfinished.py sync_directory": "a folder",
    "files/outputs.py create_new": _MADE,
    "process/address_space.py tightest_limit": _PROC,
    "sparse/sources/matrix_market.py matrix_market_rows": _OPENED,
    "sparse/sources/npy.py input_npy": _OPENED,
    "sparse/sources/npz.py _zip": _OPENED,
    "sparse/sources/text.py __init__": _OPENED,
    "tensors/storage.py in_file": _MADE,
}  # fmt: skip


def _opens(call: ast.Call) -> bool:
    """Whether a call opens a file by its name, other than to write it."""
    name = ast.unparse(call.func)
    modes = [each.value for each in (*call.args, *(word.value for word in call.keywords)) if isinstance(each, ast.Constant)]
    if any(isinstance(mode, str) and mode in ("w", "wb", "r+b", "x") for mode in modes):
        return False
    if name in OPENERS:
        return True
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in METHODS
    if is_method and call.func.attr == "open":  # of a path: stores and archives have an "open" of their own
        return any(isinstance(mode, str) and set(mode) <= set("rbta+") for mode in modes)
    return is_method and not name.startswith("files(")


def _found(tree: ast.AST, function: str = "") -> set[str]:
    """Functions of a module in which a file is opened."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef) else function
        if isinstance(node, ast.Call) and _opens(node):
            found.add(inside)
        found |= _found(node, inside)
    return found


def test_files_are_opened_by_the_door_alone():
    """Benchmarks read results of their own."""
    package = Path(oc.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        if not name.startswith("bench/"):
            found |= {f"{name} {function}" for function in _found(ast.parse(path.read_text(encoding="utf-8")))}
    assert found - set(ALLOWED) == set(), "open it by input_file, input_bytes, input_lines, input_npy or input_npz"
    assert set(ALLOWED) - found == set(), "no exception is needed any more"
