"""Odd surroundings: no home, folders that are none, names that are none, files that may not grow, no descriptors left."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import pwd
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import mmwrite
from scipy.sparse import diags_array, eye_array

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps import imputation, spectral
from ooc_chol.apps.geostat import Column, DataSpec, Layer, grid_over, write_layer
from tests.host.runs import COMMAND, ENVIRONMENT
from tests.inside.cli import main
from tests.inside.files import package_version
from tests.inside.ground import cache_directory
from tests.inside.hardware import check_writable

pytestmark = pytest.mark.usefixtures("no_hang")

N = 60
A = 3.0 * np.eye(N)
S = 2.0 * eye_array(40, format="csr")
RING = np.roll(np.eye(16), 1, axis=1) + np.roll(np.eye(16), -1, axis=1)
T, MASK = np.ones((16, 8, 8)), np.arange(16) > 2


# no home


@pytest.fixture(params=["nobody knows the user", "", "~nobody", "home"])
def homeless(request, monkeypatch, tmp_path):
    """Surroundings without a home, in an empty folder."""

    def unknown(uid: int) -> object:
        raise KeyError(uid)

    for name in ("OOC_CHOL_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "nobody knows the user":
        monkeypatch.setattr(pwd, "getpwuid", unknown)
    else:
        monkeypatch.setenv("HOME", request.param)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_home_everything_works_but_keeping_rates(homeless, capsys):
    assert cache_directory() is None
    assert oc.plan(500, tile_size=100, devices="host:0").grid.nt == 5
    with oc.cholesky(A, tile_size=20, devices="host:0") as factor:
        assert abs(factor.logdet() - N * np.log(3.0)) < 1e-12 * N
    assert np.array_equal(oc.multiply(S, np.ones((40, 2))), np.full((40, 2), 2.0))
    assert main(["plan", "--n", "500", "--devices", "host:0"]) == 0
    with pytest.raises(oc.errors.TierError, match="no home: OOC_CHOL_CACHE names one"):
        check_writable()
    assert main(["bench", "rates"]) == 2
    assert "OOC_CHOL_CACHE" in capsys.readouterr().err
    assert list(homeless.iterdir()) == []


def test_the_systems_word_for_the_home_is_taken_where_there_is_no_variable(monkeypatch):
    for name in ("OOC_CHOL_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cache_directory() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "ooc_chol"


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/below", "file", "file/below"])
def test_a_folder_of_rates_that_is_none_is_named(place, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("OOC_CHOL_CACHE", str(tmp_path / place))
    with pytest.raises(oc.errors.TierError, match="cannot be made") as raised:
        check_writable()
    assert str(tmp_path / place) in str(raised.value)
    assert main(["bench", "rates"]) == 2
    assert str(tmp_path / place) in capsys.readouterr().err


# names that are none

NUL = "a\0b"
NAMED: dict[str, Callable[[str], object]] = {
    "store": lambda name: oc.cholesky(A, tile_size=20, store=name),
    "plan": lambda name: oc.plan(A, store=name),
    "checkpoint": lambda name: oc.cholesky(A, tile_size=20, store=name, checkpoint=True),
    "checkpoint by name": lambda name: oc.cholesky(A, checkpoint=name),
    "matrix": lambda name: oc.cholesky(name),
    "load": lambda name: oc.load(name),
    "save": lambda name: oc.cholesky(A, tile_size=20).save(name),
    "load a trace": lambda name: oc.Trace.load(name),
    "pack": lambda name: oc.block_csr(S, store=name),
    "packed": lambda name: oc.block_csr(name),
    "edges": lambda name: oc.edge_list(name),
    "graph": lambda name: oc.metis_graph(name),
    "multiply": lambda name: oc.multiply(name, np.ones(40)),
    "multiply to": lambda name: oc.multiply(S, np.ones(40), packed=name),
    "eigsh to": lambda name: oc.eigsh(S, k=2, packed=name),
    "eigsh checkpoint": lambda name: oc.eigsh(diags_array(np.arange(300.0)).tocsr(), k=2, checkpoint=name),
    "svds to": lambda name: oc.svds(S, k=2, packed=name),
    "impute checkpoint": lambda name: oc.impute(T, MASK, RING, checkpoint=name),
    "work folder": lambda name: oc.impute(T, MASK, RING, work_folder=name),
    "input file": lambda name: tb.input_file(name),
    "output file": lambda name: tb.output_file(name).__enter__(),
    "output folder": lambda name: tb.output_folder(name),
    "outputs": lambda name: tb.check_outputs([tb.Output("--x", name)]),
    "read a graph": lambda name: spectral.read_graph(name),
    "read a partition": lambda name: spectral.read_partition(name),
    "write a partition": lambda name: spectral.write_partition(name, np.zeros(3, int)),
}
NAMED_WITH_AN_ENDING: dict[str, Callable[[str], object]] = {
    "group": lambda name: oc.cholesky(A, tile_size=20, store=name + ".zarr"),
    "A": lambda name: oc.cholesky(name + ".npy"),
    "A of Zarr": lambda name: oc.cholesky(name + ".zarr"),
    "load a group": lambda name: oc.load(name + ".zarr"),
    "save a group": lambda name: oc.cholesky(A, tile_size=20).save(name + ".zarr"),
    "trace": lambda name: oc.cholesky(A, tile_size=20, trace=True).trace.save(name + ".pftrace"),
}


@pytest.mark.parametrize("call", NAMED | NAMED_WITH_AN_ENDING)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_name_with_a_null_character_is_told_as_such(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"'a\\x00b.*' is no name of a file: it holds a null character"):
        (NAMED | NAMED_WITH_AN_ENDING)[call](NUL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", NAMED)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_empty_name_is_refused_before_anything_is_computed(call, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(ValueError, match="is empty; give a name"):
        NAMED[call]("")
    assert [path.name for path in tmp_path.rglob("*")] == ["work"]


# files that may not grow, by the largest file that a process may write


def traced() -> object:
    return oc.cholesky(A, tile_size=20, trace=True).trace


def layer() -> Layer:
    """Values on a grid that have no pattern."""
    grid = grid_over([0.0, 0.0], [1.0, 1.0], (30, 30))
    values = np.random.default_rng(1).standard_normal(grid.size)
    return Layer(DataSpec("csv", "", ("x", "y"), "z"), grid.points(0, grid.size), {"z": Column(values)}, "a layer", grid)


WRITERS: dict[str, Callable[[str], object]] = {
    "t.pftrace": lambda file: traced().save(file),
    "t.pftrace.gz": lambda file: traced().save(file),
    "L.factor": lambda file: oc.cholesky(A, tile_size=20).save(file),
    "L": lambda file: oc.cholesky(A, tile_size=20, store=file),
    "A.oocsr": lambda file: oc.block_csr(eye_array(4000, format="csr"), store=file),
    **{
        f"x{ending}": lambda file: imputation.write_tensor(file, np.random.default_rng(1).standard_normal((16, 40, 40)))
        for ending in (".npz", ".npy", ".nc")
    },
    **{
        f"layer{ending}": lambda file: write_layer(file, layer())
        for ending in (".csv", ".nc", ".gpkg", ".parquet", ".asc", ".tif")
    },
    "parts.txt": lambda file: spectral.write_partition(file, np.arange(9000)),
    "saved.npy": lambda file: _saved(file),
    "x.bytes": lambda file: _write(file, b"x" * 9000),
}


def _write(file: str, content: bytes) -> None:
    with tb.output_file(file) as part:
        part.write_bytes(content)


def _saved(file: str) -> None:
    with tb.output_file(file) as part, part.open("wb") as stream:
        np.save(stream, np.ones(9000))


@pytest.mark.parametrize(
    "file", [pytest.param(each, marks=pytest.mark.package("rasterio")) if each.endswith(".tif") else each for each in WRITERS]
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_a_file_without_room_is_named_with_bytes(file, tmp_path):
    """In a child, since a limit of the largest file cannot be lifted for all that pytest writes."""
    path, told = tmp_path / "out" / file, tmp_path / "told"
    path.parent.mkdir()
    writer = WRITERS[file]
    descriptor = os.open(told, os.O_CREAT | os.O_RDWR)
    if (child := os.fork()) == 0:
        try:
            sys.dont_write_bytecode = True  # files of modules would be cut, too, and kept so
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            try:
                writer(str(path))
                said = "nothing was wrong"
            except oc.errors.TierError as error:
                said = f"TierError: {error}"
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(descriptor, said.encode()[:900])
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(descriptor)
    said = told.read_text()
    assert said.startswith("TierError: ") and str(path) in said and "1000 bytes" in said, said
    assert list(path.parent.iterdir()) == []


# folders, and descriptors


@pytest.mark.parametrize("name", ["not/there", "file"])
def test_a_work_folder_that_is_none_is_named(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(oc.errors.MissingFolderError, match=rf"work_folder: there is no folder {name}") as raised:
        oc.impute(T, MASK, RING, work_folder=name)
    assert (raised.value.option, raised.value.folder) == ("work_folder", name)


def test_metadata_that_cannot_be_opened_are_named(monkeypatch):
    def version(name: str) -> str:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/somewhere/METADATA")

    monkeypatch.setattr(importlib.metadata, "version", version)
    package_version.cache_clear()
    with pytest.raises(oc.errors.TierError, match=r"metadata of the package ooc_chol: .*Too many open files.*ulimit -n"):
        package_version()


# standard streams that are closed, or full


@pytest.mark.parametrize("words", [("plan", "--n", "3000", "--devices", "host:0"), ("devices", "--json")], ids=" ".join)
@pytest.mark.usefixtures("processes")
def test_a_command_whose_output_nobody_reads_ends_as_others_do(words, tmp_path):
    read, write = os.pipe()
    os.close(read)  # as head does after its lines
    done = subprocess.run([*COMMAND, *words], cwd=tmp_path, env=ENVIRONMENT, check=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert done.returncode == 128 + signal.SIGPIPE
    assert b"roken" not in done.stderr


@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("factor", "a.npy", "--store", "L.ooc", "--tile-size", "20"), 0),
        (("eigsh", "a.mtx", "-k", "2", "--json"), 0),
        (("geostat", "variogram", "t.csv", "--x", "x", "--y", "y", "--value", "z"), 0),
        (("factor", "b.npy", "--store", "M.ooc"), 2),
        (("factor",), 2),
    ],
    ids=["a bar", "figures", "an application", "an error", "no words"],
)
@pytest.mark.usefixtures("processes")
def test_a_command_works_without_standard_error(words, status, streams, tmp_path):
    np.save(tmp_path / "a.npy", A)
    mmwrite(tmp_path / "a.mtx", diags_array(np.arange(900.0)))
    np.savetxt(tmp_path / "t.csv", np.random.default_rng(1).random((40, 3)), delimiter=",", header="x,y,z", comments="")
    buffered = {name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", f'"$@" {streams}', "bash", *COMMAND, *words], cwd=tmp_path, env=buffered, check=False)
    assert done.returncode == status
    for file in tmp_path.glob("L.ooc"):
        oc.load(file).close()


@pytest.mark.parametrize(
    "call",
    [
        lambda **shown: oc.cholesky(A, tile_size=20, **shown).close(),
        lambda **shown: oc.eigsh(diags_array(np.arange(300.0)).tocsr(), k=2, **shown),
        lambda **shown: oc.impute(T, MASK, RING, **shown),
    ],
    ids=["cholesky", "eigsh", "impute"],
)
def test_a_bar_without_a_standard_error_shows_nothing(call, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    call(progress=True)
