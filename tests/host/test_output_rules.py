"""The rule of files that are written, for every way of writing one: by Python and by the shell, each a row of one table."""

from __future__ import annotations

import gzip
import os
import pickle
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr

import ooc_chol as oc
from ooc_chol.apps.spectral import write_partition
from tests.host.matrices import FAMILIES
from tests.host.turns import in_turn
from tests.inside.cli import main
from tests.inside.dense import cholesky, saving

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 60, 16
A = FAMILIES["matern15 nugget 1e-6"](N)
STRANGER = b"the only copy of a thesis\n"

#: Endings that promise a format which is not ours.
PROMISES = (
    ".npy",
    ".npz",
    ".json",
    ".h5",
    ".zarr",
    ".csv",
    ".png",
    ".gz",
    ".txt",
    ".CSV",
    ".nc",
    ".pdf",
    ".oocsr",
    ".ooceig",
    ".oocsvd",
    ".oocimp",
    ".graph",
    ".edges",
    ".asc",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, which holds a matrix and has a link to itself for a neighbour."""
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "also").symlink_to(here)
    monkeypatch.chdir(here)
    np.save("a.npy", A)
    return here


@pytest.fixture(scope="module", autouse=True)
def zarr_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Zarr's own threads, which it keeps, and which no test of this file is to be blamed for."""
    zarr.create_array(store=str(tmp_path_factory.mktemp("zarr")), data=np.eye(400), chunks=(1, 400))


# every way of writing a file


def by_store(path: str, force: bool) -> None:
    oc.cholesky("a.npy", tile_size=NB, store=path, replace=force).close()


def by_save(path: str, force: bool) -> None:
    with oc.cholesky("a.npy", tile_size=NB) as factor:
        factor.save(path, replace=force)


def by_trace(path: str, force: bool) -> None:
    with oc.cholesky("a.npy", tile_size=NB, trace=True) as factor:
        factor.trace.save(path, replace=force)


def by_partition(path: str, force: bool) -> None:
    write_partition(path, [0, 1], replace=force)


def by_shell(*words: str) -> Callable[[str, bool], None]:
    """A command whose last word names the output; its error is raised as the one that the command met."""

    def write(path: str, force: bool) -> None:
        status = main([*words, path, *["--force"] * force])
        if status:
            raise _Refused(status)

    return write


class _Refused(Exception):
    """The shell's way of refusing: an exit status, and one line that the test reads."""


@dataclass(frozen=True)
class Writer:
    """A row: how a file is written, the endings that it may have, and whether an earlier one is replaced unasked."""

    write: Callable[[str, bool], None]
    ending: str
    also: tuple[str, ...] = ()
    is_marked: bool = True
    knows_inputs: bool = True  #: a trace does not know what its factorization read

    @property
    def is_shell(self) -> bool:
        return self.write.__qualname__.startswith("by_shell")


FACTOR = ("factor", "a.npy", "--tile-size", str(NB), "--quiet")
PICTURE = ("plan", "--matrix", "a.npy", "--tile-size", str(NB), "--precision-threshold", "1e-4", "--picture")
WRITERS = {
    "store": Writer(by_store, ".ooc", (".zarr",)),
    "save": Writer(by_save, ".ooc", (".npy", ".zarr")),
    "save an array": Writer(by_save, ".npy", (".ooc", ".zarr"), is_marked=False),
    "trace": Writer(by_trace, ".pftrace", (".gz",), knows_inputs=False),
    "compressed trace": Writer(by_trace, ".pftrace.gz", (".gz", ".pftrace"), knows_inputs=False),
    "--store": Writer(by_shell(*FACTOR, "--store"), ".ooc", (".zarr",)),
    "--trace": Writer(by_shell(*FACTOR, "--store", "L", "--trace"), ".pftrace", (".gz",)),
    "--report": Writer(by_shell(*FACTOR, "--store", "L", "--report"), ".json"),
    "--picture": Writer(by_shell(*PICTURE), ".svg"),
    "--output": Writer(by_shell("report", "--matrix", "a.npy", "--output"), ".txt", (".md",)),
    "product": Writer(by_shell("sparse", "multiply", "a.npy", "a.npy", "--quiet", "--output"), ".npy", is_marked=False),
    "pairs": Writer(by_shell("eigsh", "a.npy", "--quiet", "--output"), ".npz"),
    "partition": Writer(by_partition, ".txt", (".gz",), is_marked=False, knows_inputs=False),
}
every_writer = pytest.mark.parametrize("name", WRITERS)


def refused(
    capsys: pytest.CaptureFixture[str], writer: Writer, path: str, kind: type | tuple[type, ...], *, force: bool = False
) -> str:
    """The text with which ``path`` is refused; Python raises ``kind``, the shell says one line and has status 2."""
    capsys.readouterr()
    with pytest.raises(_Refused if writer.is_shell else kind) as caught:
        writer.write(path, force)
    if not writer.is_shell:
        return str(caught.value)
    err = capsys.readouterr().err
    assert caught.value.args == (2,) and err.startswith("ooc-chol: ") and err.count("\n") == 1, err
    return err


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Fail unless the folder, and all within, are as they were."""

    def contents() -> dict[str, Any]:
        found = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
        return {name: path.read_bytes() if path.is_file() else os.lstat(path).st_mode for name, path in found.items()}

    before = contents()
    yield
    assert contents() == before


# 1. never an input, never another output

WAYS: dict[str, Callable[[str], str]] = {
    "same path": lambda name: name,
    "relative path": lambda name: f"../here/./{name}",
    "symlink": lambda name: Path("link").symlink_to(name) or "link",
    "symlink to a symlink": lambda name: Path("x").symlink_to(name) or Path("link").symlink_to("x") or "link",
    "hard link": lambda name: Path("link").hardlink_to(name) or "link",
    "linked folder": lambda name: f"../also/{name}",
}


@pytest.mark.parametrize(("name", "way"), in_turn(WRITERS, list(WAYS)))
def test_no_output_is_the_matrix(folder, capsys, name, way):
    writer = WRITERS[name]
    path = WAYS[way]("a.npy")
    with untouched(folder):
        if writer.knows_inputs:
            assert "is the same file as " in refused(capsys, writer, path, oc.errors.OutputError, force=True)
        else:
            refused(capsys, writer, path, (oc.errors.OutputError, ValueError))


@pytest.mark.parametrize("inner", ["c/0/0", "x.ooc", "zarr.json"])
@pytest.mark.parametrize("way", ["a.zarr", "../also/a.zarr", "link"])
def test_no_output_lies_in_a_folder_that_is_the_matrix(folder, inner, way):
    zarr.create_array(store="a.zarr", data=A, chunks=(30, 30))
    Path("link").symlink_to("a.zarr")
    a = zarr.open_array("a.zarr", mode="r")
    with untouched(folder), pytest.raises(oc.errors.OutputError, match="read as A") as caught:
        oc.cholesky(a, tile_size=NB, store=f"{way}/{inner}", replace=True)
    assert caught.value.other == "A"
    with oc.cholesky(a, tile_size=NB) as factor:
        for name in (inner, "L.npy"):
            with untouched(folder), pytest.raises(oc.errors.OutputError, match="read as the matrix"):
                factor.save(f"{way}/{name}", replace=True)


def test_parts_of_an_h5py_data_set_in_other_files_are_inputs(folder):
    with h5py.File("part.h5", "w") as file:
        file["a"] = A
    layout = h5py.VirtualLayout((N, N), "f8")
    layout[...] = h5py.VirtualSource("part.h5", "a", (N, N))
    with h5py.File("whole.h5", "w") as file:
        file.create_virtual_dataset("a", layout)
        file.create_dataset("b", (N, N), "f8", external=[("raw", 0, 8 * N * N)])[...] = A
    os.link("part.h5", "part")
    with h5py.File("whole.h5", "r") as file:
        for data, store in (("a", "part"), ("b", "raw")):
            with untouched(folder), pytest.raises(oc.errors.OutputError, match="same file as A"):
                oc.cholesky(file[data], tile_size=NB, store=store, replace=True)


@pytest.mark.package("dask")
@pytest.mark.commit
def test_what_lies_behind_a_dask_array_is_an_input(folder):
    import dask.array

    dask.config.set(scheduler="synchronous")  # the threads of its own would outlive the test
    xarray.DataArray(A, name="a").to_netcdf("a.nc")
    with h5py.File("a.h5", "w") as file:
        file["a"] = A
    zarr.create_array(store="a.zarr", data=A)
    with h5py.File("a.h5") as file, xarray.open_dataset("a.nc", chunks={}) as opened:
        ones = {
            "a.h5": dask.array.from_array(file["a"], chunks=20) + np.eye(N),
            "a.zarr": dask.array.from_zarr("a.zarr"),
            "a.nc": (opened["a"] * 2).data,
        }
        for name, a in ones.items():
            os.symlink(name, "link")
            with untouched(folder), pytest.raises(oc.errors.OutputError, match="same file as A"):
                oc.cholesky(a, tile_size=NB, store="link", replace=True)
            os.unlink("link")


@pytest.mark.parametrize(("first", "second"), [("out", "OUT"), ("out", "Out"), ("\u00e9", "e\u0301"), ("stra\u00dfe", "STRASSE")])
@pytest.mark.parametrize("option", ["--trace", "--report"])
def test_new_files_whose_names_differ_in_case_alone_are_one(folder, capsys, first, second, option):
    writer = Writer(by_shell(*FACTOR, "--store", first, option), "")
    with untouched(folder):
        text = refused(capsys, writer, second, oc.errors.OutputError, force=True)
    assert f"{option}: {second} is the same file as --store ({first}) on many disks" in text


def test_two_files_that_are_there_may_differ_in_case_alone(folder, capsys):
    """Where a disk has both, it tells them apart."""
    Path("OUT").write_bytes(STRANGER)
    by_shell(*FACTOR, "--store", "out", "--trace")("OUT", True)
    oc.load("out").close()


# 2. what a name promises


@every_writer
def test_a_name_does_not_promise_another_format(folder, capsys, name):
    writer = WRITERS[name]
    for ending in (*PROMISES, ".ooc", ".pftrace", ".svg"):
        if ending.lower() in (writer.ending, *writer.also):
            continue
        with untouched(folder):
            text = refused(capsys, writer, f"new{ending}", ValueError, force=True)
        assert f"new{ending}" in text and ("written as" in text), text


@every_writer
def test_any_other_name_will_do(folder, name):
    writer = WRITERS[name]
    names = [] if name == "--picture" else ["new", "new.v2", "new.factor"]  # which is an SVG file by its name
    names = ["new.v2.npy"] if name == "save an array" else names
    for path in [f"new{writer.ending}", f"NEW{writer.ending.upper()}", *names]:
        writer.write(path, False)
        assert Path(path).stat().st_size > 0


def test_a_store_that_is_to_be_an_array_says_how(folder):
    with pytest.raises(ValueError, match=r"^store: L\.npy: .*ends in \.ooc.*L\.save\(\"L\.npy\"\)"):
        oc.cholesky(A, tile_size=NB, store="L.npy")


# 3. what is there already


@every_writer
def test_a_stranger_is_replaced_only_when_asked_and_keeps_its_permissions(folder, capsys, name):
    writer = WRITERS[name]
    path = f"out{writer.ending}"
    Path(path).write_bytes(STRANGER)
    os.chmod(path, 0o640)
    with untouched(folder):
        text = refused(capsys, writer, path, oc.errors.OutputError)
    assert f"{path} exists already" in text and ("--force" if writer.is_shell else "replace") in text
    writer.write(path, True)
    assert STRANGER not in Path(path).read_bytes() and stat.S_IMODE(os.stat(path).st_mode) == 0o640


@every_writer
def test_the_same_call_may_be_made_twice_where_files_have_a_mark(folder, capsys, name):
    writer = WRITERS[name]
    path = f"out{writer.ending}"
    writer.write(path, False)
    if writer.is_marked:
        writer.write(path, False)
        return
    with untouched(folder):
        refused(capsys, writer, path, oc.errors.OutputError)


@every_writer
def test_files_of_one_kind_are_not_replaced_by_another(folder, capsys, name):
    """A factor, a trace, a report and a picture each replace their own kind and none of the others."""
    writer = WRITERS[name]
    path = f"out{writer.ending}"
    for write, other in ((by_store, ".ooc"), (by_trace, ".pftrace")):
        if other in writer.ending:
            continue
        write("other", True)
        os.replace("other", path)
        with untouched(folder):
            refused(capsys, writer, path, oc.errors.OutputError)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "FIFO"])
@every_writer
def test_what_is_no_ordinary_file_is_never_replaced(folder, capsys, name, make):
    writer = WRITERS[name]
    make(path := f"out{writer.ending}")
    with untouched(folder):
        assert "no ordinary file" in refused(capsys, writer, path, oc.errors.OutputError, force=True)


@every_writer
def test_a_stranger_that_comes_meanwhile_is_left_alone(folder, capsys, monkeypatch, name):
    """Another program writes a file of that name between the check and the end."""
    writer = WRITERS[name]
    path = f"out{writer.ending}"
    seen = []

    def after(function):
        def comes_then(*words):
            function(*words)
            if not seen:
                seen.append(Path(path).write_bytes(STRANGER))

        return comes_then

    with monkeypatch.context() as patch:
        # the first is called when a factor is nearly complete, the second when an empty file was made for anything else
        name_of = "fsync" if writer.ending == ".ooc" or name == "save an array" else "close"
        patch.setattr(os, name_of, after(getattr(os, name_of)))
        text = refused(capsys, writer, path, oc.errors.OutputError)
    assert seen and Path(path).read_bytes() == STRANGER
    if writer.ending == ".ooc":  # hours of work are not thrown away
        (kept,) = (found for found in os.listdir() if found.startswith(f"{path}-"))
        assert kept in text
        with oc.load(kept) as factor:
            assert factor.n == N


# 4. folders


@pytest.mark.parametrize("parent", ["no", "a.npy", "dangling"])
@every_writer
def test_a_folder_that_is_not_there_is_one_typed_error(folder, capsys, monkeypatch, name, parent):
    writer = WRITERS[name]
    Path("dangling").symlink_to("nowhere")
    if name not in ("save", "save an array", "trace", "compressed trace", "partition"):
        monkeypatch.setattr(cholesky, "factor_in_fp64", lambda *_, **__: pytest.fail("factored for nothing"))
    with untouched(folder):
        text = refused(capsys, writer, f"{parent}/new{writer.ending}", oc.errors.MissingFolderError, force=True)
    assert f"there is no folder {parent}" in text and "make it, or give another name" in text


def test_the_error_of_a_folder_keeps_its_facts(folder):
    with pytest.raises(oc.errors.MissingFolderError) as caught:
        oc.cholesky(A, tile_size=NB, store="no/L")
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, FileNotFoundError) and isinstance(error, oc.errors.TierError)
    assert (error.option, error.path, error.folder, str(error)) == ("store", "no/L", "no", str(caught.value))


@contextmanager
def not_as_root() -> Iterator[None]:
    """As somebody who may not write everywhere."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_a_folder_that_allows_no_files_is_met_before_the_work(folder):
    def tile(rows, cols, out, stream):
        pytest.fail("the matrix was read")

    for write, name in ((by_store, "a"), (by_trace, "b"), (by_save, "c.npy")):  # nobody may import a module from everywhere
        write(name, False)
    with tempfile.TemporaryDirectory() as place, oc.cholesky(A, tile_size=NB, trace=True) as factor:  # where nobody may go, too
        os.chmod(place, 0o555)
        writers = [lambda: oc.cholesky(oc.from_function(N, tile), tile_size=NB, store=f"{place}/L.ooc")]
        writers += [lambda: factor.save(f"{place}/L.ooc"), lambda: factor.save(f"{place}/L.npy")]
        writers += [lambda: factor.trace.save(f"{place}/run.pftrace")]
        with not_as_root():
            for write in writers:
                with pytest.raises(oc.errors.TierError, match=f"no file may be made in {place}; give a name in another folder"):
                    write()
        assert os.listdir(place) == []


# 5. complete or not at all


@every_writer
def test_a_write_that_fails_leaves_what_was_there(folder, capsys, monkeypatch, name):
    writer = WRITERS[name]
    path = f"out{writer.ending}"
    writer.write(path, False)
    before, names = Path(path).read_bytes(), sorted(os.listdir())

    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        with pytest.raises(_Refused if writer.is_shell else OSError):
            writer.write(path, not writer.is_marked)
    assert Path(path).read_bytes() == before and sorted(os.listdir()) == names


# arrays and compressed traces


@pytest.mark.parametrize("threshold", [None, 1e-4])
@pytest.mark.parametrize("store", [None, "L.ooc"])
def test_a_saved_array_is_the_factor(folder, monkeypatch, threshold, store):
    monkeypatch.setattr(saving, "_BAND_BYTES", 8 * N * 7)
    with oc.cholesky(A, precision_threshold=threshold, tile_size=NB, store=store) as factor:
        factor.save("out.npy")
        read = np.load("out.npy", mmap_mode="r", allow_pickle=False)
        assert read.flags.c_contiguous and read.dtype == factor.dtype
        assert np.array_equal(read, np.asarray(factor))


def test_an_array_is_saved_band_by_band(folder, monkeypatch):
    """Never the dense matrix in memory at once."""
    heights = []
    real = oc.CholeskyFactor.rows
    monkeypatch.setattr(saving, "_BAND_BYTES", 8 * N * 7)
    monkeypatch.setattr(
        oc.CholeskyFactor, "rows", lambda self, rows, stop: (heights.append(len(rows)), real(self, rows, stop))[1]
    )
    with oc.cholesky(A, tile_size=NB) as factor:
        factor.save("out.npy")
    assert sum(heights) == N and max(heights) == 7


def test_a_compressed_trace_is_the_trace(folder):
    with oc.cholesky(A, tile_size=NB, trace=True) as factor:
        for name in ("run.pftrace", "run.pftrace.gz", "again.pftrace.gz"):
            factor.trace.save(name)
    assert gzip.decompress(Path("run.pftrace.gz").read_bytes()) == Path("run.pftrace").read_bytes()
    assert Path("run.pftrace.gz").read_bytes() == Path("again.pftrace.gz").read_bytes()
    Path("other.pftrace.gz").write_bytes(gzip.compress(STRANGER))
    with untouched(folder), pytest.raises(oc.errors.OutputError, match="no trace"):
        factor.trace.save("other.pftrace.gz")


# after the end


def test_a_closed_factor_says_so(folder):
    factor = oc.cholesky(A, tile_size=NB)
    assert not factor.closed
    with factor:
        pass
    assert factor.closed
    uses = [
        factor.logdet,
        factor.diagonal,
        lambda: factor.solve(np.ones(N)),
        lambda: factor.save("L"),
        lambda: np.asarray(factor),
    ]
    for use in uses:
        with pytest.raises(oc.errors.ClosedError, match="is closed") as caught:
            use()
        assert isinstance(caught.value, ValueError) and isinstance(caught.value, oc.errors.TierError)
