"""Every argument of what people call, given something wrong: a typed error that names it, and no file is left behind."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse

import ooc_chol as oc
from tests.public import MODULES, public_names

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N = 6
A = np.eye(N) * 2
RING = scipy.sparse.csr_array(np.roll(np.eye(N), 1, axis=0) + np.roll(np.eye(N), -1, axis=0))
MASK = np.broadcast_to(np.arange(N)[:, None, None] % 3 > 0, (N, 4, 3)).copy()


def tile(rows, cols, out, stream):
    out[...] = A[rows.start : rows.stop, cols.start : cols.stop]


class Made(NamedTuple):
    """An argument that is made for each call, and closed."""

    make: Callable[[], Any]


FUNCTION = oc.from_function(N, tile)

#: Arguments with which each function works; those that are not here have defaults.
VALID: dict[str, dict[str, Any]] = {
    "FactorOptions": {},
    "GraphFourier": {"graph": RING},
    "Operator": {"matrix": Made(lambda: oc.block_csr(RING))},
    "block_csr": {"source": RING},
    "cholesky": {"A": A},
    "edge_list": {"path": "edges.txt"},
    "eigsh": {"A": RING, "k": 2, "which": "SA"},
    "from_function": {"n": N, "tile_fn": tile},
    "impute": {"X": np.where(MASK, 1.0, 0.0), "mask": MASK, "graph": RING, "n_lambdas": 1},
    "laplacian": {"A": RING},
    "load": {"path": "L.factor"},
    "logdet": {"A": A},
    "testing.low_rank_tensor": {"graph": RING, "m": 3, "n": 2, "rank": 2},
    "rates.measure_pass_rates": {"devices": "host:0", "quick": True},
    "rates.measure_rates": {"tile_size": 16, "quick": True},
    "metis_graph": {"path": "path.graph"},
    "multiplier": {"A": RING},
    "multiply": {"A": RING, "X": np.ones((N, 2))},
    "plan": {"A": N},
    "plan_eigsh": {"A": ((1000, 1000), 5000, "fp64"), "k": 2, "which": "SA"},
    "plan_impute": {"X": (6, 4, 3), "mask": None, "graph": None},
    "plan_multiply": {"A": ((1000, 1000), 5000, "fp64"), "X": 1},
    "plan_svds": {"A": ((1000, 900), 5000, "fp64"), "k": 2},
    "testing.random_mask": {"shape": (3, 3, 3), "observed": 0.5},
    "testing.rmat": {"scale": 3, "degree": 2},
    "solve": {"A": A, "b": np.ones(N)},
    "svds": {"A": RING, "k": 2},
    "symm": {"A": FUNCTION, "b": np.ones(N)},
    "testing.urand": {"scale": 3, "degree": 2},
    "toolbox.cuda_names": {},
    "toolbox.observed_mask": {"X": np.ones((2, 2, 2))},
    "toolbox.resolve_devices": {"devices": "host:0"},
    "BatchFactor.half_solve": {"b": np.ones((2, N))},
    "BatchFactor.matmul": {"z": np.ones((2, N))},
    "BatchFactor.solve": {"b": np.ones((2, N))},
    "BlockCSR.tocsr": {},
    "CholeskyFactor.downdate": {"v": np.ones(N) / 9},
    "CholeskyFactor.half_solve": {"b": np.ones(N)},
    "CholeskyFactor.half_solve_sums": {"matrix": FUNCTION, "columns": range(2)},
    "CholeskyFactor.half_solves": {"b": np.ones((N, 1)), "c": np.ones((N, 1))},
    "CholeskyFactor.inverse_diagonal": {},
    "CholeskyFactor.inverse_panels": {},
    "CholeskyFactor.inverse_traces": {"matrices": [FUNCTION]},
    "CholeskyFactor.matmul": {"z": np.ones(N)},
    "CholeskyFactor.residual": {"a": A},
    "CholeskyFactor.rows": {"rows": range(2), "stop": 2},
    "CholeskyFactor.sample": {},
    "CholeskyFactor.save": {"path": "new.factor"},
    "CholeskyFactor.solve": {"b": np.ones(N)},
    "CholeskyFactor.solve_triangular": {"b": np.ones(N)},
    "CholeskyFactor.update": {"v": np.ones(N)},
    "GraphFourier.forward": {"X": np.ones((N, 2, 2))},
    "GraphFourier.inverse": {"Xh": np.ones((N, 2, 2))},
    "Multiplier.apply": {"x": np.ones((N, 1))},
    "Trace.load": {"path": "run.pftrace"},
    "Trace.save": {"path": "new.pftrace"},
}
OWNERS: dict[str, Callable[[], Any]] = {
    "BatchFactor": lambda: oc.cholesky(np.stack([A, A])),
    "BlockCSR": lambda: oc.block_csr(RING),
    "CholeskyFactor": lambda: oc.cholesky(A),
    "GraphFourier": lambda: oc.GraphFourier(RING),
    "Multiplier": lambda: oc.multiplier(RING),
    "Trace": lambda: oc.cholesky(A, trace=True).trace,
}
#: Functions of which nothing is refused here, and why.
NOT_HERE = {
    **{
        f"toolbox.{name}": "helps applications, whose own checks come first"
        for name in (
            *("add_words", "answering", "brief_repr", "check_outputs", "check_room", "checked", "documented", "format_bytes"),
            *("guarded_imports", "input_bytes", "input_file", "input_lines", "link_lines", "open_reporter", "progress_reporter"),
            *("input_npy", "input_npz", "install_hint", "map_in_threads", "notebook_html", "one_line", "output_file"),
            *("output_folder", "parse_bytes", "parse_json", "plain_array", "real_number", "real_tensor", "shell_words"),
            *(
                "blas_threads",
                "called_beside",
                "is_dense",
                "joined_columns",
                "kept_threads",
                "networkx_adjacency",
                "whole_number",
            ),
        )
    },
    "toolbox.cuda_source": "text that a compiler reads on a GPU",
    "devices": "takes nothing",
    "open_cluster": "starts a cluster",
    "toolbox.run_cuda_blocks": "needs a GPU before anything else",
}
#: What a message calls a parameter where it has no name that a person would know.
CALLED = {
    "b": "right-hand side",
    "c": "right-hand side",
    "devices": "device",
    "dtype": "data type|dtype",
    "graph": "A is",
    "n_components": "r has",
    "A": "A is",
    "source": "A is",
    "stop": ":-1",
    "v": "right-hand side",
    "vectors": "right-hand side",
    "x": "X",
    "z": "right-hand side",
}
#: Wrong values that are none, by function and parameter, or by parameter.
TAKEN = {
    ("FactorOptions", "devices"): "looked at where it is used: they may be on another machine",
    ("CholeskyFactor.solve", "a"): "read with refine=True only",
    ("Operator", "left"): "negative numbers are numbers",
    ("Operator", "shift"): "negative numbers are numbers",
    ("eigsh", "sigma"): "negative numbers are numbers",
    ("plan_eigsh", "sigma"): "negative numbers are numbers",
    ("edge_list", "name"): "words of messages",
    ("metis_graph", "name"): "words of messages",
}


def function_of(name: str) -> Any:
    return attrgetter(name)(oc)


def parameters(name: str) -> list[inspect.Parameter]:
    """Those that may be given by name, but for switches: anything is true or false."""
    given = list(inspect.signature(function_of(name)).parameters.values())
    return [
        each
        for each in given
        if each.name != "self" and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and str(each.annotation) != "bool"
    ]


def wrong_values(parameter: inspect.Parameter) -> list[Any]:
    """Values that its annotation does not have: no number, below every size, a switch, and words that nobody knows."""
    told, wrong = str(parameter.annotation), [object()]
    if re.search(r"\b(int|float)\b", told) and "Callable" not in told:
        wrong += [float("nan"), -1, {}] + [True] * ("bool" not in told) + ["12"] * ("str" not in told)
    is_word = isinstance(parameter.default, str) or re.search(r"\bstr\b|Literal|DTypeLike", told)
    return wrong + ["no such word"] * bool(is_word and "Path" not in told)


def call(name: str, arguments: dict[str, Any]) -> None:
    """Call, and use what is given back as far as it is lazy."""
    owner, _, method = name.partition(".")
    with ExitStack() as stack:

        def used(one: Any) -> Any:
            if inspect.isgenerator(one):
                list(one)
            return stack.enter_context(one) if hasattr(one, "__enter__") and not isinstance(one, Path) else one

        given = {key: used(value.make()) if isinstance(value, Made) else value for key, value in arguments.items()}
        used(getattr(used(OWNERS[owner]()), method)(**given) if method and owner in OWNERS else function_of(name)(**given))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in but for what calls read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / "cache"))
    Path("edges.txt").write_text("0 1\n1 2\n", encoding="utf-8")
    Path("path.graph").write_text("3 2\n2\n1 3\n2\n", encoding="utf-8")
    with oc.cholesky(A, trace=True) as factor:
        factor.save("L.factor")
        factor.trace.save("run.pftrace")
    return tmp_path


CASES = [pytest.param(name, each, id=f"{name}-{each.name}") for name in VALID for each in parameters(name)]


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_what_is_wrong_is_refused_by_name_and_leaves_nothing(name, parameter, folder):
    before = sorted(folder.iterdir())
    for value in wrong_values(parameter):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if (name, parameter.name) in TAKEN:
                continue
            with pytest.raises((TypeError, ValueError, oc.OocCholError)) as refused:
                call(name, VALID[name] | {parameter.name: value})
        called = rf"\b{parameter.name}\b|{CALLED.get(parameter.name, '(?!)')}"
        assert re.search(called, str(refused.value)), f"{value!r}: {refused.value}"
        assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", [name for name in VALID if not name.startswith("rates.")])
def test_the_arguments_beside_are_right(name, folder):
    call(name, VALID[name])


def test_every_public_function_is_here():
    public = {name for name, one in public_names().items() if inspect.isfunction(one)}
    listed = {name for name in {*VALID, *NOT_HERE} if "." not in name or name.partition(".")[0] in MODULES}
    assert public == {name for name in listed if inspect.isfunction(function_of(name))}
    every = {(name, each.name) for name in VALID for each in parameters(name)}
    assert TAKEN.keys() <= every and CALLED.keys() <= {name for _, name in every}
