"""No file that is read is ever written, no stranger is replaced unasked, and no link leads a write astray."""

from __future__ import annotations

import mmap
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray
import zarr

import ooc_chol as oc
import ooc_chol.toolbox as tb
from tests.builders import file_store
from tests.host.matrices import FAMILIES
from tests.host.turns import in_turn
from tests.inside.cli import main
from tests.inside.tasks import TileGrid

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 60, 16
A = FAMILIES["matern15 nugget 1e-6"](N)
STRANGER = b"the only copy of a thesis\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, which has a link to itself for a neighbour."""
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "also").symlink_to(here)
    monkeypatch.chdir(here)
    return here


@pytest.fixture(scope="module", autouse=True)
def zarr_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Zarr's own threads, which it keeps, and which no test of this file is to be blamed for."""
    zarr.create_array(store=str(tmp_path_factory.mktemp("zarr")), data=np.eye(400), chunks=(1, 400))


# every kind of input, by every way that leads to its file


@contextmanager
def the_path(path: Path) -> Iterator[Any]:
    yield str(path)


@contextmanager
def loaded_with_mmap_mode(path: Path) -> Iterator[Any]:
    yield np.load(path, mmap_mode="r")


@contextmanager
def copy_on_write(path: Path) -> Iterator[Any]:
    yield np.load(path, mmap_mode="c")


@contextmanager
def memmap(path: Path) -> Iterator[Any]:
    yield np.memmap(path, dtype=np.float64, mode="r+", offset=128, shape=(N, N))


@contextmanager
def part_of_a_memmap(path: Path) -> Iterator[Any]:
    yield np.load(path, mmap_mode="r")[::2, ::2]


@contextmanager
def masked_memmap(path: Path) -> Iterator[Any]:
    yield np.ma.masked_invalid(np.load(path, mmap_mode="r"), copy=False)


@contextmanager
def memory_map_of_the_system(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    yield np.frombuffer(mapped, dtype=np.float64, offset=128).reshape(N, N)


@contextmanager
def h5py_dataset(path: Path) -> Iterator[Any]:
    path.unlink()
    with h5py.File(path, "w") as file:
        file["a"] = A
    with h5py.File(path, "r") as file:
        yield file["a"]


@contextmanager
def netcdf4_variable(path: Path) -> Iterator[Any]:
    path.unlink()
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("site", N)
        file.createVariable("a", "f8", ("site", "site"))[...] = A
    with netCDF4.Dataset(path) as file:
        yield file["a"]


@contextmanager
def variable_of_xarray(path: Path) -> Iterator[Any]:
    path.unlink()
    xarray.DataArray(A, name="a").to_netcdf(path, engine="netcdf4")
    with xarray.open_dataset(path) as opened:
        yield opened["a"]


@contextmanager
def zarr_in_a_zip_file(path: Path) -> Iterator[Any]:
    path.unlink()
    with zarr.storage.ZipStore(path, mode="w") as store:
        zarr.create_array(store, name="a", data=A)
    with zarr.storage.ZipStore(path, mode="r") as store:
        yield zarr.open_array(store, path="a", mode="r")


INPUTS = (
    the_path,
    loaded_with_mmap_mode,
    copy_on_write,
    memmap,
    part_of_a_memmap,
    masked_memmap,
    memory_map_of_the_system,
    h5py_dataset,
    netcdf4_variable,
    variable_of_xarray,
    zarr_in_a_zip_file,
)


def linked(path: Path, link: Callable[[Path, Path], None]) -> Path:
    """A link to ``path``."""
    link(other := path.with_name("other"), path)
    return other


WAYS: dict[str, Callable[[Path], str]] = {
    "same path": str,
    "relative path": lambda path: os.path.join("..", path.parent.name, ".", path.name),
    "symlink": lambda path: str(linked(path, Path.symlink_to)),
    "hard link": lambda path: str(linked(path, Path.hardlink_to)),
    "linked folder": lambda path: str(path.parent.parent / "also" / path.name),
}
every_way = pytest.mark.parametrize("way", WAYS)


@contextmanager
def unharmed(path: Path) -> Iterator[None]:
    """Fail unless the file, its links and its folder are as they were."""
    before, names = (path.read_bytes(), path.stat().st_ino), sorted(os.listdir(path.parent))
    yield
    assert (path.read_bytes(), path.stat().st_ino) == before
    assert sorted(os.listdir(path.parent)) == names


@pytest.mark.parametrize(("kind", "way", "threshold"), in_turn(INPUTS, list(WAYS), [None, 1e-4]))
def test_a_store_is_never_the_file_of_a(folder, kind, way, threshold):
    path = folder / "a.npy"
    np.save(path, A)
    with kind(path) as a:
        store = WAYS[way](path)
        with unharmed(path), pytest.raises(oc.errors.OutputError, match=r"same file as A.* give another name") as caught:
            oc.cholesky(a, precision_threshold=threshold, tile_size=NB, store=store, replace=True)
    assert (caught.value.option, caught.value.path, caught.value.other) == ("store", store, "A")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.option, again.path, again.other) == (str(caught.value), "store", store, "A")


@pytest.mark.parametrize(("kind", "way"), in_turn(INPUTS, list(WAYS)))
def test_a_factor_is_never_saved_over_the_matrix_that_refinement_reads(folder, kind, way):
    path = folder / "a.npy"
    np.save(path, A)
    with kind(path) as a, oc.cholesky(a, tile_size=NB) as factor:
        target = WAYS[way](path)
        with unharmed(path), pytest.raises(oc.errors.OutputError, match="same file as the matrix"):
            factor.save(target, replace=True)


@every_way
def test_a_factor_over_its_matrix_is_not_saved_over_its_own_file(folder, way):
    path = folder / "a.npy"
    np.save(path, A)
    a = np.load(path, mmap_mode="r+")
    with oc.cholesky(a, tile_size=NB, overwrite=True) as factor:
        target = WAYS[way](path)
        with unharmed(path), pytest.raises(oc.errors.OutputError, match="same file as the matrix"):
            factor.save(target, replace=True)


@every_way
@pytest.mark.parametrize("option", ["--store", "--trace", "--report"])
def test_no_output_of_factor_is_its_matrix(folder, capsys, option, way):
    path = folder / "a.npy"
    np.save(path, A)
    target = WAYS[way](path)
    words = ["factor", str(path), *([] if option == "--store" else ["--store", "L"]), option, target]
    with unharmed(path):
        assert main([*words, "--force", "--quiet"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"ooc-chol: {option}: {Path(target)} is the same file as MATRIX") and err.count("\n") == 1


@every_way
def test_no_output_of_plan_is_its_matrix(folder, capsys, way):
    path = folder / "a.npy"
    np.save(path, A)
    words = ["plan", "--matrix", str(path), "--precision-threshold", "1e-4", "--picture", WAYS[way](path), "--force"]
    with unharmed(path):
        assert main(words) == 2
    assert "same file as --matrix" in capsys.readouterr().err


@pytest.mark.parametrize(("first", "second"), [("--store", "--trace"), ("--store", "--report"), ("--trace", "--report")])
@pytest.mark.parametrize("name", ["out", "./out", "link", "../also/out"])
def test_two_outputs_are_two_files(folder, capsys, first, second, name):
    np.save("a.npy", A)
    Path("link").symlink_to("out")  # which does not exist yet
    words = ["factor", "a.npy", *([] if first == "--store" else ["--store", "L"]), first, "out", second, name, "--quiet"]
    with unharmed(folder / "a.npy"):
        assert main(words) == 2
    err = capsys.readouterr().err
    assert first in err and second in err


# what is there already


def test_a_store_replaces_factors_only(folder):
    path = folder / "L"
    path.write_bytes(STRANGER)
    with (
        unharmed(path),
        pytest.raises(oc.errors.TierError, match=r"exists already and is no factor.*replace=True") as caught,
    ):
        oc.cholesky(A, tile_size=NB, store=path)
    assert isinstance(caught.value, oc.errors.OutputError) and caught.value.other is None
    oc.cholesky(A, tile_size=NB, store=path, replace=True).close()
    oc.cholesky(4 * A, tile_size=NB, store=path).close()  # ours, complete
    with oc.load(path) as factor:
        assert np.array_equal(np.asarray(factor), 2 * np.asarray(oc.cholesky(A, tile_size=NB)))


def test_a_store_replaces_a_factor_that_was_not_finished(folder):
    file_store("L", TileGrid(N, NB)).close()
    os.rename("L.partial", "L")
    oc.cholesky(A, tile_size=NB, store="L").close()
    oc.load("L").close()


def test_a_mixed_run_refuses_a_stranger_before_it_reads_the_matrix(folder):
    def tile(rows, cols, out, stream):
        pytest.fail("the matrix was read")

    Path("L").write_bytes(STRANGER)
    with unharmed(folder / "L"), pytest.raises(oc.errors.TierError, match="no factor"):
        oc.cholesky(oc.from_function(N, tile), precision_threshold=1e-4, tile_size=NB, store="L")


def test_saving_replaces_factors_only(folder):
    path = folder / "L"
    path.write_bytes(STRANGER)
    with oc.cholesky(A, tile_size=NB) as factor:
        with unharmed(path), pytest.raises(oc.errors.TierError, match=r"exists already and is no factor.*replace=True"):
            factor.save(path)
        factor.save(path, replace=True)
        factor.save(path)
    oc.load(path).close()


@every_way
def test_a_file_of_another_open_factor_is_replaced_only_when_asked(folder, way):
    path = folder / "L"
    oc.cholesky(A, tile_size=NB, store=path).close()
    expected = np.asarray(oc.cholesky(A, tile_size=NB))
    with oc.load(path) as opened, oc.cholesky(4 * A, tile_size=NB) as factor:
        target = WAYS[way](path)
        with unharmed(path), pytest.raises(oc.errors.OutputError, match=r"open factor.*close it.*replace=True"):
            factor.save(target)
        factor.save(target, replace=True)
        assert np.array_equal(np.asarray(opened), expected), "it still reads the file that it has opened"
    with oc.cholesky(A, tile_size=NB) as factor:
        factor.save(target)  # nobody has it open now


def test_the_file_of_a_factor_that_has_just_been_made_is_open(folder):
    made, factor = oc.cholesky(A, tile_size=NB, store="L"), oc.cholesky(4 * A, tile_size=NB)
    with made, unharmed(folder / "L"), pytest.raises(oc.errors.OutputError, match="open factor"):
        factor.save("L")


def test_a_factorization_replaces_the_file_of_an_open_factor_and_leaves_it_what_it_had(folder):
    """As where a cell of a notebook runs again: the factor before has the file that lost its name, until it is closed."""
    with oc.cholesky(A, tile_size=NB, store="L") as first:
        wanted = first.logdet()
        with oc.cholesky(4 * A, tile_size=NB, store="L") as second:
            assert first.logdet() == wanted != second.logdet()
        with oc.load("L") as found:
            assert found.logdet() != wanted


def test_an_update_leaves_files_of_open_factors(folder):
    with oc.cholesky(A, tile_size=NB, store="L") as factor, oc.cholesky(A, tile_size=NB) as other:
        for each in (factor, other):
            with (
                unharmed(folder / "L"),
                pytest.raises(oc.errors.OutputError, match="L is the file of another open factor"),
            ):
                each.update(A[:, 0], store="L")


def test_a_trace_replaces_traces_only(folder):
    path = folder / "run.pftrace"
    path.write_bytes(STRANGER)
    trace = oc.cholesky(A, tile_size=NB, trace=True).trace
    with unharmed(path), pytest.raises(oc.errors.OutputError, match=r"no trace.*replace=True"):
        trace.save(path)
    trace.save(path, replace=True)
    first = path.read_bytes()
    oc.cholesky(A, tile_size=NB, trace=True).trace.save(path)
    assert path.read_bytes() != first


@pytest.mark.parametrize("option", ["--store", "--trace", "--report"])
def test_factor_replaces_a_stranger_by_force_only_and_its_own_files_unasked(folder, capsys, option):
    np.save("a.npy", A)
    words = ["factor", "a.npy", *([] if option == "--store" else ["--store", "L"]), option, "out", "--quiet"]
    out = folder / "out"
    out.write_bytes(STRANGER)
    with unharmed(out):
        assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"ooc-chol: {option}: out exists already") and "--force" in err
    assert main([*words, "--force"]) == 0 and out.read_bytes() != STRANGER
    assert main(words) == 0


def test_plan_replaces_a_picture_of_its_own(folder, capsys):
    np.save("a.npy", A)
    words = ["plan", "--matrix", "a.npy", "--precision-threshold", "1e-4", "--picture", "map.svg"]
    assert main(words) == main(words) == 0
    Path("map.svg").write_text("<svg>by hand</svg>")
    with unharmed(folder / "map.svg"):
        assert main(words) == 2
    assert main([*words, "--force"]) == 0 and "by hand" not in Path("map.svg").read_text()


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "FIFO"])
def test_what_is_no_ordinary_file_is_never_replaced(folder, make, replace):
    make("out")
    factor = oc.cholesky(A, tile_size=NB, trace=True)
    for write in (
        lambda: oc.cholesky(A, tile_size=NB, store="out", replace=replace),
        lambda: factor.save("out", replace=replace),
        lambda: factor.trace.save("out", replace=replace),
    ):
        with pytest.raises(oc.errors.OutputError, match="no ordinary file"):
            write()
    assert os.listdir() == ["out"]


# names of unfinished files


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to], ids=["symlink", "hard link"])
@pytest.mark.parametrize("what", ["matrix", "stranger", "factor"])
def test_the_name_of_an_unfinished_file_leads_nowhere(folder, link, what, replace):
    precious = folder / ("precious" if what == "factor" else "precious.npy")
    np.save("a.npy", A)
    if what == "factor":
        oc.cholesky(A, tile_size=NB, store=precious).close()
    else:
        precious.write_bytes(STRANGER if what == "stranger" else Path("a.npy").read_bytes())
    before = precious.read_bytes()
    link(folder / "out.partial", precious)
    if link is Path.hardlink_to and what == "factor":  # a second name of a factor is one of ours; its first one stays
        oc.cholesky(folder / "a.npy", tile_size=NB, store="out").close()
        assert sorted(os.listdir(folder)) == ["a.npy", "out", "precious"]
    else:
        with pytest.raises(oc.errors.TierError, match=r"out\.partial.*remove it"):
            oc.cholesky(precious if what == "matrix" else A, tile_size=NB, store="out", replace=replace)
        assert sorted(os.listdir(folder)) == ["a.npy", "out.partial", precious.name]
    assert precious.read_bytes() == before


def test_a_dangling_link_as_the_name_of_an_unfinished_file_creates_nothing(folder):
    Path("out.partial").symlink_to("elsewhere")
    with pytest.raises(oc.errors.TierError, match=r"out\.partial.*remove it"):
        oc.cholesky(A, tile_size=NB, store="out")
    assert os.listdir() == ["out.partial"]


def test_an_empty_unfinished_file_is_that_of_a_run_killed_at_its_start(folder):
    Path("out.partial").touch()
    oc.cholesky(A, tile_size=NB, store="out").close()
    assert os.listdir() == ["out"]


def test_the_unfinished_file_is_marked_from_its_first_bytes_on(folder, monkeypatch):
    """Whenever a run is killed, the next one knows what it left."""
    seen = []
    real = os.posix_fallocate
    monkeypatch.setattr(
        os, "posix_fallocate", lambda *words: (seen.append(Path("out.partial").read_bytes()[:8]), real(*words))[1]
    )
    file_store("out", TileGrid(N, NB)).discard()
    assert seen == [b"OOCCHOL\n"]


def test_a_link_to_another_disk_stays_a_link_for_traces_too(folder):
    Path("run.pftrace").symlink_to("disk.pftrace")
    trace = oc.cholesky(A, tile_size=NB, trace=True).trace
    for _ in range(2):
        trace.save("run.pftrace")
        assert Path("run.pftrace").is_symlink() and Path("disk.pftrace").stat().st_size > 1000


def test_links_at_guessable_names_are_left_alone(folder, capsys):
    np.save("a.npy", A)
    precious = folder / "precious"
    precious.write_bytes(STRANGER)
    for name in ("run.pftrace.partial", "report.json.partial", "report.partial", "report.part"):
        Path(name).symlink_to(precious)
    assert main(["factor", "a.npy", "--store", "L", "--quiet", "--trace", "run.pftrace", "--report", "report.json"]) == 0
    assert precious.read_bytes() == STRANGER
    assert not Path("run.pftrace").is_symlink() and not Path("report.json").is_symlink()


# permissions


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_replaced_file_keeps_its_permissions(folder, mode):
    factor = oc.cholesky(A, tile_size=NB, trace=True)
    for name, write in (("L", factor.save), ("run.pftrace", factor.trace.save)):
        write(name)
        os.chmod(name, mode)
        write(name)
        assert stat.S_IMODE(os.stat(name).st_mode) == mode
    os.chmod("L", mode)
    modes = set()
    oc.cholesky(A, tile_size=NB, store="L", progress=lambda *_: modes.add(os.stat("L.partial").st_mode)).close()
    assert {stat.S_IMODE(found) for found in modes} == {stat.S_IMODE(os.stat("L").st_mode)} == {mode}


def test_a_new_file_has_the_permissions_of_any_new_file(folder):
    before = os.umask(0o027)
    try:
        factor = oc.cholesky(A, tile_size=NB, trace=True)
        factor.save("L")
        factor.trace.save("run.pftrace")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(os.stat(name).st_mode) for name in ("L", "run.pftrace")} == {0o640}


# the writer itself


def test_an_output_file_appears_complete_or_not_at_all(folder):
    Path("out").write_bytes(STRANGER)
    with pytest.raises(KeyboardInterrupt), tb.output_file("out", replace=True) as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert os.listdir() == ["out"] and Path("out").read_bytes() == STRANGER
    with tb.output_file("out", replace=True) as part:
        part.write_text("all")
        assert Path("out").read_bytes() == STRANGER
    assert os.listdir() == ["out"] and Path("out").read_text() == "all"


def test_a_mark_is_looked_for_where_the_kind_has_it(folder):
    at_start, anywhere = tb.FileKind("kind", b"mark"), tb.FileKind("kind", b"mark", anywhere=True)
    for content, expected in (
        (b"mark", (True, True)),
        (b" mark", (False, True)),
        (bytes(200_000) + b"mark", (False, True)),
        (bytes(200_000) + b"mark" + bytes(200_000), (False, False)),
        (b"mar", (False, False)),
        (b"", (False, False)),
    ):
        Path("file").write_bytes(content)
        assert (at_start.has("file"), anywhere.has("file")) == expected
    assert not at_start.has("nothing")
