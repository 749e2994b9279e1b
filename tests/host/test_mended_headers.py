"""Checkpoints that were changed and signed anew: each field of a wrong type or value is refused, or does no harm; NaN too."""

from __future__ import annotations

import json
from copy import deepcopy

import numpy as np
import pytest

import ooc_chol as oc
from tests.host import eigsh_kills, impute_kills
from tests.host.packed_file_bytes import PAGE, header_of
from tests.inside.files import first_page, hash_bytes
from tests.tensor_runs import error_of

#: What stands in place of each field: other types of JSON, and numbers that are none of its kind.
WRONG = ([], {}, "x", None, True, -1, 2.5, 10**30, "nan", [1])


def fields(tree, path=()):
    """All fields of a header but those of its key, which differ as a whole, and of a list the first two."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree[:2]) if isinstance(tree, list) else ()
    for name, value in inner:
        if (*path, name) != ("key",):
            yield (*path, name)
            yield from fields(value, (*path, name))


def with_field(header, path, value):
    changed = deepcopy(header)
    place = changed["facts"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize("solver", ["impute", "eigsh"])
def test_a_header_of_another_shape_is_damage(tmp_path, solver):
    path = tmp_path / "c"
    solved = {"impute": impute_kills.solved, "eigsh": eigsh_kills.solved}[solver]
    expected = solved(path)
    data = path.read_bytes()
    offset, header = header_of(data)
    refused = 0
    for place in fields(header["facts"]):
        for value in WRONG:
            changed = with_field(header, place, value)
            if json.dumps(changed) == json.dumps(header):
                continue
            text = json.dumps(changed).encode()
            path.write_bytes(first_page(offset, text, data[:8]) + data[PAGE:offset] + text)
            try:
                found = solved(path)
            except oc.errors.DamagedFileError as error:
                refused += 1
                assert str(path) in str(error)
            else:  # a number that could have been measured
                assert value == 2.5 and place[-1] in ("mean_rank", "change", "seconds", "asymmetry"), (place, value)
                is_same = error_of(found, expected.tensor) == 0 if solver == "impute" else np.allclose(found[0], expected[0])
                assert is_same, (place, value)
    assert refused > 100


@pytest.mark.parametrize("solver", ["impute", "eigsh"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_number_that_no_run_leaves_is_damage(tmp_path, solver, number):
    path = tmp_path / "c"
    solved = {"impute": impute_kills.solved, "eigsh": eigsh_kills.solved}[solver]
    solved(path)
    whole = path.read_bytes()
    offset, header = header_of(whole)
    start = PAGE
    for block, (size, sums) in enumerate(list(header["blocks"])):
        changed = bytearray(whole)
        values = np.frombuffer(changed, np.float32 if solver == "impute" else np.float64, size // 8, start)
        values[len(values) // 2] = number
        stop = start + -(-size // PAGE) * PAGE
        header["blocks"][block][1] = f"{hash_bytes(bytes(changed[start:stop]), block):016x}"
        text = json.dumps(header).encode()
        path.write_bytes(first_page(offset, text, whole[:8]) + changed[PAGE:offset] + text)
        with pytest.raises(oc.errors.DamagedFileError, match=str(path)):
            solved(path)
        header["blocks"][block][1], start = sums, stop
