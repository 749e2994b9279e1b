"""L in a Zarr group: the bits of memory, read by plain Zarr and xarray; damage, kills, replacing, pickling, two writers."""

from __future__ import annotations

import json
import pickle
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import fsspec
import numpy as np
import obstore
import pytest
import xarray
import zarr

import ooc_chol as oc
from tests.host.checkpoint_runs import ENGINES, StopError, bits, stop_at
from tests.host.golden import cauchy
from tests.inside.cli import main
from tests.inside.dense import FileStore, GroupShape, MemoryStore, Withheld, ZarrStore
from tests.inside.files import FsspecFolder, LocalFolder, ObstoreFolder
from tests.inside.ground import format_bytes
from tests.inside.precision import COMPLEX64, COMPLEX128, FORMATS, FP8, FP16, FP32, FP64
from tests.inside.tasks import TileGrid, Window

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("no_hang", "zarr_threads", "folder")]

N, NB = 150, 32
A = cauchy(N, 0.05, 2, 1e-3)
PLAIN = {"tile_size": NB, "devices": "host:0", "memory_budget": "200 KiB"}
GRID = TileGrid(N, NB)
#: Formats of tiles as mixed precision gives them: FP64 on the diagonal, and each of the others below.
MIXED = tuple(FP64 if i == j else (FP64, FP32, FP16, FP8)[(i + j) % 4] for i, j in GRID.tiles())


def tile(index: tuple[int, int], fmt=FP64):
    """Some numbers of a tile, zero above the diagonal, of magnitudes that differ from tile to tile."""
    rng = np.random.default_rng(100 * index[0] + index[1])
    numbers = rng.standard_normal(GRID.shape(*index)) * 10.0 ** (index[0] - 2 * index[1])
    if fmt.is_complex:
        numbers = numbers + 1j * rng.standard_normal(numbers.shape)
    return np.ascontiguousarray(np.tril(numbers) if index[0] == index[1] else numbers, dtype=fmt.dtype)


def filled(store, tiles=None):
    """``store`` with its tiles written."""
    for index in GRID.tiles() if tiles is None else tiles:
        store.write(index, tile(index, store.fmt))
    return store


def contents(store):
    """All tiles of a store as one array."""
    dense = np.zeros((N, N), store.fmt.dtype)
    for i, j in store.grid.tiles():
        out = np.empty(GRID.shape(i, j), store.fmt.dtype)
        store.read((i, j), out)
        dense[GRID.start(i) :, GRID.start(j) :][: out.shape[0], : out.shape[1]] = out
    return dense


def flip(path: Path, place: int) -> None:
    """Flip a bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


PLACES = {
    "local": lambda: LocalFolder(str(Path("L.zarr").absolute())),
    "fsspec": lambda: FsspecFolder("memory://x/L.zarr", *fsspec.core.url_to_fs("memory://x/L.zarr")),
    "obstore": lambda: ObstoreFolder("of obstore", obstore.store.MemoryStore()),
}
KINDS = {
    "fp64": (FP64, None),
    "fp32": (FP32, None),
    "complex128": (COMPLEX128, None),
    "complex64": (COMPLEX64, None),
    "mixed": (FP64, MIXED),
}


# the same bits, wherever they are


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_tiles_come_back_as_from_memory(place, kind):
    (fmt, formats), where = KINDS[kind], PLACES[place]()
    with closing(filled(MemoryStore(GRID, formats, fmt=fmt))) as memory:
        store = filled(ZarrStore.create(where, GRID, {"key": 1}, formats, fmt=fmt))
        assert np.array_equal(contents(store), contents(memory))  # what was written is read before it is complete
        store.complete()
        with closing(ZarrStore.open(where)) as again:
            assert np.array_equal(contents(again), contents(memory))
            assert (again.formats, again.fmt, again.arithmetic_key) == (memory.formats, memory.fmt, {"key": 1})
            rows, out = range(3, 9), np.empty((6, GRID.size(2)), fmt.dtype)
            again.read_rows((4, 2), rows, out)
            assert np.array_equal(out, contents(memory)[GRID.start(4) + 3 :][:6, GRID.start(2) :][:, : GRID.size(2)])
            raw = np.empty(again.layout.nbytes(3, 1), np.uint8)
            again.read_stored((3, 1), raw)
            assert np.array_equal(raw, memory.stored((3, 1)))


@pytest.mark.parametrize("kind", KINDS)
def test_checksums_are_those_of_a_file(kind):
    fmt, formats = KINDS[kind]
    file, group = FileStore.create("L", GRID, {}, formats, fmt=fmt), ZarrStore.create("L.zarr", GRID, {}, formats, fmt=fmt)
    with closing(filled(file)), closing(filled(group)):
        file.complete()
        group.complete()
        assert np.array_equal(group.packed_checksums(), file._checked.tables.index[: GRID.n_tiles])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_factor_has_the_bits_of_one_in_memory(engine):
    a, options = ENGINES[engine]
    right = bits(oc.cholesky(a, **options))
    assert bits(oc.cholesky(a, store="L.zarr", **options)) == right
    with oc.load("L.zarr") as factor:
        assert factor._store.name == "zarr"
        factor.save("memory://there/L")
        factor.save("L.ooc")
    assert bits(oc.load("L.zarr")) == bits(oc.load("memory://there/L")) == bits(oc.load("L.ooc")) == right
    with oc.load("L.ooc") as factor:
        factor.save("again.zarr")
    assert bits(oc.load(f"file://{Path('again.zarr').absolute()}")) == right


def test_kept_tiles_go_to_the_group_as_well():
    right = bits(oc.cholesky(A, **PLAIN))
    assert bits(oc.cholesky(A, store="L.zarr", host_budget="60 kB", **PLAIN)) == right == bits(oc.load("L.zarr"))


def test_a_matrix_of_one_tile_and_of_none():
    for n in (0, 1, 7):
        a = cauchy(n, 0.1, 2, 1e-3) if n else np.empty((0, 0))
        with oc.cholesky(a, store=f"{n}.zarr") as factor:
            assert np.array_equal(zarr.open(f"{n}.zarr")["L"][:], np.asarray(factor))


# what others read


@pytest.mark.parametrize("kind", KINDS)
def test_the_descriptions_of_arrays_are_those_that_zarr_writes(kind):
    fmt, formats = KINDS[kind]
    shape = GroupShape(GRID, 4, fmt, (fmt,) if formats is None else (FP64, FP32, FP16, FP8))
    group = zarr.create_group("made.zarr")
    for array in shape.arrays():
        crc = zarr.codecs.Crc32cCodec()
        group.create_array(
            array.name,
            shape=array.shape,
            chunks=array.chunks,
            dtype=array.dtype,
            fill_value=0,
            compressors=[crc],
            filters=None,
            dimension_names=array.dimensions,
        )
        written = json.loads(Path(f"made.zarr/{array.name}/zarr.json").read_text())
        assert json.loads(array.document()) == written


def test_chunks_have_the_bytes_that_zarr_writes():
    with closing(filled(ZarrStore.create("L.zarr", GRID))) as store:
        store.complete()
        dense = contents(store)
    array = zarr.create_array(
        "Z.zarr", shape=(N, N), chunks=(NB, NB), dtype="float64", compressors=[zarr.codecs.Crc32cCodec()], filters=None
    )
    array[:] = dense
    for i, j in GRID.tiles():
        assert Path(f"L.zarr/L/c/{i}/{j}").read_bytes() == Path(f"Z.zarr/c/{i}/{j}").read_bytes()
    assert not Path("L.zarr/L/c/0/1").exists()


def test_plain_zarr_and_xarray_read_l():
    with oc.cholesky(A, store="L.zarr", **PLAIN) as factor:
        dense = np.asarray(factor)
    assert np.array_equal(zarr.open("L.zarr", mode="r")["L"][:], dense)
    with xarray.open_zarr("L.zarr", consolidated=False) as data:
        assert data["L"].dims == ("row", "column")
        assert np.array_equal(data["L"].values, dense)


def test_plain_zarr_sums_the_formats():
    with closing(filled(ZarrStore.create("L.zarr", GRID, {}, MIXED))) as store:
        store.complete()
        dense = contents(store)
    group = zarr.open("L.zarr", mode="r")
    scale = np.kron(2.0 ** -group["exponents"][:].astype(float), np.ones((NB, NB)))[:N, :N]
    fp8 = group["L_fp8"][:].view(FORMATS["fp8"].dtype).astype(float)
    total = group["L"][:] + group["L_fp32"][:] + scale * (group["L_fp16"][:].astype(float) + fp8)
    assert np.array_equal(total, dense)
    codes = [group["formats"][i, j] for i, j in GRID.tiles()]
    assert [list(FORMATS.values())[code - 1] for code in codes] == list(MIXED)


# damage


DAMAGE = ["flip", "missing", "short", "long", "another place", "another matrix", "no checksums", "bad checksums"]


def finished() -> Path:
    """The path of a finished factor."""
    with closing(filled(ZarrStore.create("L.zarr", GRID))) as store:
        store.complete()
    return Path("L.zarr")


@pytest.mark.parametrize("index", [(2, 1), (4, 3)])
@pytest.mark.parametrize("way", DAMAGE)
def test_damage_is_found_and_named(way, index, capsys):
    path = finished()
    chunk, checksums = path / f"L/c/{index[0]}/{index[1]}", path / "checksums/c/0/0"
    if way == "flip":
        flip(chunk, 77)
    elif way == "missing":
        chunk.unlink()
    elif way == "short":
        chunk.write_bytes(chunk.read_bytes()[:-9])
    elif way == "long":
        chunk.write_bytes(chunk.read_bytes() + b"0")
    elif way == "another place":
        shutil.copy(path / "L/c/3/2", chunk)
    elif way == "another matrix":
        with closing(filled(ZarrStore.create("other.zarr", TileGrid(N - 1, NB)), tiles=[])) as other:
            numbers = tile(index)
            other.write(index, np.ascontiguousarray(numbers[: other.grid.size(index[0])]) * 2)
        shutil.copy(f"other.zarr/L/c/{index[0]}/{index[1]}", chunk)
    elif way == "no checksums":
        checksums.unlink()
    else:
        flip(checksums, 8)
    with pytest.raises(oc.errors.DamagedFileError) as caught, closing(ZarrStore.open(path)) as store:
        store.read(index, np.empty(GRID.shape(*index)))
    if way != "bad checksums":
        assert caught.value.tile == index and f"L/c/{index[0]}/{index[1]}" in str(caught.value)
    assert "L.zarr" in caught.value.path
    assert main(["verify", "L.zarr"]) == 1
    printed = capsys.readouterr().out
    assert ("checksums are damaged" if way == "bad checksums" else f"tile {index}") in printed


def test_damage_that_only_plain_readers_meet_is_found_by_verify(capsys):
    path = finished()
    flip(path / "L/c/1/0", -2)  # of the CRC-32C
    assert main(["verify", "L.zarr"]) == 1
    assert "tile (1, 0): its CRC-32C is not that of its bytes" in capsys.readouterr().out
    path.joinpath("L/zarr.json").write_text("{}")
    assert main(["verify", "L.zarr"]) == 1
    assert "L/zarr.json is missing, or describes another array" in capsys.readouterr().out


def test_verify_says_what_is_whole_and_what_is_unfinished(capsys):
    finished()
    assert main(["verify", "L.zarr", "--json", "--quiet"]) == 0
    answer = json.loads(capsys.readouterr().out)["files"][0]
    assert (answer["is_whole"], answer["tiles"], answer["n"], answer["is_complete"]) == (True, GRID.n_tiles, N, True)
    store = filled(ZarrStore.create("half.zarr", GRID, height=2), tiles=[(0, 0), (1, 0), (1, 1)])
    store.finish_window(Window(range(2), range(2)))
    assert main(["verify", "half.zarr"]) == 0
    said = f"unfinished; what was written is whole (3 tiles, {format_bytes(3 * 8 * NB**2)}; {GRID.n_tiles - 3} tiles are missing"
    assert said in capsys.readouterr().out
    assert main(["verify", "none.zarr"]) == 2


def test_attributes_that_were_changed_are_refused():
    path = finished()
    document = path / "zarr.json"
    whole = json.loads(document.read_text())
    for change in ({"n": N + 1}, {"complete": False}, {"signature": "0"}):
        content = {**whole, "attributes": {"ooc_chol": {**whole["attributes"]["ooc_chol"], **change}}}
        document.write_text(json.dumps(content))
        with pytest.raises(oc.errors.DamagedFileError, match="is damaged"):
            oc.load(path)
    for text in ("", "[]", '{"attributes": 3, "node_type": "group"}', '{"zarr_format": 3}'):
        document.write_text(text)
        with pytest.raises(oc.errors.DamagedFileError, match="is no description"):
            oc.load(path)
    content = {**whole, "attributes": {"ooc_chol": {**whole["attributes"]["ooc_chol"], "version": 9}}}
    document.write_text(json.dumps(content))
    with pytest.raises(oc.errors.TierError, match="of version 9, and version 1 is read"):
        oc.load(path)


# windows, as workers write them


def write_window(place, window: Window, facts=None, finish: bool = True) -> None:
    """What a worker does."""
    with closing(ZarrStore.open_for_writing(place)) as store:
        filled(store, window.tiles())
        if finish:
            store.finish_window(window, facts)


def blocks(height: int):
    """All windows of a grid."""
    count = -(-GRID.nt // height)
    spans = [range(at * height, min((at + 1) * height, GRID.nt)) for at in range(count)]
    return [Window(spans[s], spans[p]) for p in range(count) for s in range(p, count)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("formats", [None, MIXED], ids=["fp64", "mixed"])
def test_workers_write_windows_and_whoever_made_the_group_completes_it(place, formats):
    where = PLACES[place]()
    client = ZarrStore.create(where, GRID, {"key": 1}, formats, height=2)
    windows = blocks(2)
    assert client.finished_windows() == []
    facts = {"seconds": 1.5, "worker": "tcp://here"}
    norms = np.arange(5.0 * GRID.n_tiles).reshape(-1, 5)
    with ThreadPoolExecutor(4) as workers:  # every window twice: two write the same bytes at once
        for window in windows:
            own = {**facts, "norms": norms[: len(list(window.tiles()))]} if formats else facts
            for done in [workers.submit(write_window, where, window, own) for _ in range(2)]:
                done.result()
            assert window in client.finished_windows()
    assert client.finished_windows() == windows
    told = client.window_facts(windows[1])
    assert {name: told[name] for name in facts} == facts
    if formats:
        assert np.array_equal(told["norms"], norms[: len(list(windows[1].tiles()))])
    client.complete()
    with closing(filled(MemoryStore(GRID, formats))) as memory, closing(ZarrStore.open(where)) as store:
        assert np.array_equal(contents(store), contents(memory))


def test_a_window_without_checksums_is_not_there():
    client, windows = ZarrStore.create("L.zarr", GRID, height=2), blocks(2)
    write_window("L.zarr", windows[0])
    write_window("L.zarr", windows[1], finish=False)  # as if it had been killed there
    assert client.finished_windows() == windows[:1]
    with pytest.raises(oc.errors.TierError, match=r"tile \(2, 0\) .* is not there yet: its window was not finished"):
        client.read((2, 0), np.empty((NB, NB)))
    with pytest.raises(oc.errors.TierError, match=r"tile \(2, 0\) was never written; the factor is not complete"):
        client.complete()
    with pytest.raises(oc.errors.TierError, match="is unfinished"):
        ZarrStore.open("L.zarr")
    for window in windows[1:]:
        write_window("L.zarr", window)
    client.complete()
    with closing(ZarrStore.open("L.zarr")) as store, closing(filled(MemoryStore(GRID))) as memory:
        assert np.array_equal(contents(store), contents(memory))


def test_a_window_must_be_of_blocks_and_written():
    store = ZarrStore.create("L.zarr", GRID, height=2)
    with pytest.raises(ValueError, match="not made of blocks of 2 tile rows"):
        store.finish_window(Window(range(1, 3), range(1, 2)))
    with pytest.raises(oc.errors.TierError, match=r"tile \(0, 0\) of a window that is to be finished was never written"):
        store.finish_window(Window(range(2), range(2)))


def test_a_tile_that_is_confirmed_while_another_is_written_is_in_the_group(monkeypatch):
    """A thread that writes a tile looks which checksums to hide; before it writes them, another one lets the first be seen."""
    store, last = ZarrStore.create("L.zarr", GRID, checkpoint={}), list(GRID.tiles())[-2]
    store.keep_unfinished()
    others = [index for index in GRID.tiles() if index != last]
    for index in others:
        store.write(index, tile(index))
        if index[0] == index[1] and index != (0, 0):
            store.confirm(index)
    looked = Withheld.places

    def looked_early(withheld):
        found = looked(withheld)
        monkeypatch.setattr(Withheld, "places", looked)
        assert found
        store.confirm((0, 0))
        return found

    monkeypatch.setattr(Withheld, "places", looked_early)
    store.write(last, tile(last))
    assert Withheld.places is looked
    store.complete()
    store.close()
    with closing(ZarrStore.open("L.zarr")) as back:
        for index in GRID.tiles():
            found = np.empty(GRID.shape(*index))
            back.read(index, found)
            assert np.array_equal(found, tile(index))


def test_a_worker_that_fails_leaves_the_group_and_its_maker_removes_it():
    store = ZarrStore.create("L.zarr", GRID, height=2)
    Path("L.zarr/notes.txt").write_text("of somebody else")
    with closing(ZarrStore.open_for_writing("L.zarr")) as worker:
        filled(worker, [(0, 0)])
        worker.discard()
    assert Path("L.zarr/L/c/0/0").exists()
    store.discard()
    assert [path.name for path in Path("L.zarr").rglob("*")] == ["notes.txt"]
    with pytest.raises(oc.errors.ClosedError):
        store.read((0, 0), np.empty((NB, NB)))


# going on


@pytest.mark.parametrize(
    ("engine", "place"),
    [
        ("native", "L.zarr"),
        ("residue", "L.zarr"),
        ("mixed", "memory://a/L"),
        ("complex", "memory://a/L.zarr"),
        *(
            pytest.param(engine, "L.zarr", marks=pytest.mark.thorough)
            for engine in ("mixed", "mixed residue", "complex", "float32")
        ),
        pytest.param("native", "memory://a/L.zarr", marks=pytest.mark.thorough),
    ],
)
def test_a_run_that_failed_is_gone_on_from_to_the_same_bits(engine, place):
    a, options = ENGINES[engine]
    right = bits(oc.cholesky(a, **options))
    with pytest.raises(StopError) as caught:
        oc.cholesky(stop_at(a, 62 if "precision_threshold" not in options else 118), store=place, checkpoint=True, **options)
    assert "the same call goes on from it" in caught.value.__notes__[0]
    with pytest.raises(oc.errors.TierError, match="is unfinished"):
        oc.load(place)
    with pytest.raises(oc.errors.OutputError, match="is a checkpoint, from which checkpoint=True goes on"):
        oc.cholesky(a, store=place, **options)
    with oc.cholesky(stop_at(a, 0), store=place, checkpoint=True, **options) as factor:
        assert factor.report.resumed > 0
    assert bits(oc.load(place)) == right
    with oc.cholesky(stop_at(a, 0), store=place, checkpoint=True, **options) as factor:  # it is given at once
        assert factor.report.resumed == GRID.n_tiles if len(a) == N else factor.report.resumed > 0


def written():
    """Files of tiles that are there."""
    return [path for path in Path("L.zarr/L/c").rglob("*") if path.is_file()]


def stop_once_written():
    """Stop a run that has a tile in its file, however busy the thread is that writes."""
    while not written():
        time.sleep(0.001)
    raise StopError


def test_a_damaged_tile_of_a_checkpoint_is_computed_again():
    right = bits(oc.cholesky(A, **PLAIN))
    with pytest.raises(StopError):
        oc.cholesky(stop_at(A, 28, stop_once_written), checkpoint="L.zarr", **PLAIN)
    there = written()
    assert there
    flip(there[0], 100)
    left = [Path("L.zarr", name + ".0123456789abcdef.part") for name in ("L/c/0/0", "zarr.json")]
    others = (
        "thesis.part",
        "mine/video.part",
        "mine/L.0123456789abcdef.part",
        "L/c/0/0.0123.part",
        "notes.0123456789abcdef.part",
    )
    strangers = [Path("L.zarr", name) for name in others]
    Path("L.zarr/mine").mkdir()
    for path in [*left, *strangers]:
        path.write_bytes(b"of a process that was killed, or of somebody else")
    with oc.cholesky(stop_at(A, 0), checkpoint="L.zarr", **PLAIN):
        pass
    assert bits(oc.load("L.zarr")) == right
    assert set(Path("L.zarr").rglob("*.part")) == set(strangers)


def test_another_matrix_is_no_checkpoint_of_this_one():
    with pytest.raises(StopError):
        oc.cholesky(stop_at(A, 28), checkpoint="L.zarr", **PLAIN)
    with pytest.raises(oc.errors.CheckpointError):
        oc.cholesky(A + np.eye(N), checkpoint="L.zarr", **PLAIN)
    assert main(["verify", "L.zarr"]) == 0


def test_a_matrix_that_is_not_positive_definite_leaves_nothing():
    a = A.copy()
    a[100, 100] = -1.0
    for more in ({}, {"checkpoint": True}):
        with pytest.raises(oc.NotPositiveDefiniteError) as caught:
            oc.cholesky(a, store="L.zarr", **more, **PLAIN)
        assert caught.value.minor == 101
        assert not Path("L.zarr").exists()


def test_widened_tiles_are_in_one_array_alone():
    store = filled(ZarrStore.create("L.zarr", GRID, {}, MIXED))
    narrow = [index for index, fmt in zip(GRID.tiles(), MIXED, strict=True) if fmt == FP16][:2]
    store.keep_unfinished()
    store.widen(narrow)
    store.save_checkpoint({"who": "this test"})
    store.close()
    with closing(ZarrStore.open_unfinished("L.zarr")) as again:
        assert again.layout.widened == tuple(narrow) and again.checkpoint == {"who": "this test"}
        again.take_over()
        assert all(again.format_of(index) == FP64 for index in narrow)
        filled(again)
        again.complete()
        dense = contents(again)
    group = zarr.open("L.zarr", mode="r")
    for i, j in narrow:
        place = slice(GRID.start(i), GRID.start(i + 1)), slice(GRID.start(j), GRID.start(j + 1))
        assert np.array_equal(group["L"][place], dense[place]) and not group["L_fp16"][place].any()
        assert group["formats"][i, j] == 1


# what may be replaced


def test_nothing_is_replaced_unasked_and_what_is_not_ours_never():
    oc.cholesky(A, store="L.zarr", **PLAIN).close()
    with pytest.raises(oc.errors.OutputError, match=r"is a factor already; .*replace it by replace=True"):
        oc.cholesky(A, store="L.zarr", **PLAIN)
    oc.cholesky(2 * A, store="L.zarr", replace=True, **PLAIN).close()
    assert bits(oc.load("L.zarr")) == bits(oc.cholesky(2 * A, **PLAIN))
    zarr.create_group("others.zarr").create_array("a", data=A)
    Path("folder.zarr").mkdir()
    Path("folder.zarr/thesis.txt").write_text("the only copy")
    Path("file.zarr").write_text("the only copy")
    for name in ("others.zarr", "folder.zarr", "file.zarr"):
        with pytest.raises(
            oc.errors.OutputError, match=r"is no factor of ooc_chol, which is never removed|exists and is no folder"
        ):
            oc.cholesky(A, store=name, replace=True, **PLAIN)
        with oc.load("L.zarr") as factor, pytest.raises(oc.errors.OutputError):
            factor.save(name, replace=True)
    assert Path("folder.zarr/thesis.txt").exists() and np.array_equal(zarr.open("others.zarr")["a"][:], A)
    with pytest.raises(oc.errors.MissingFolderError, match="there is no folder"):
        oc.cholesky(A, store="none/L.zarr", **PLAIN)
    Path("empty.zarr").mkdir()
    oc.cholesky(A, store="empty.zarr", **PLAIN).close()


def test_a_factor_is_not_saved_over_itself():
    with oc.cholesky(A, store="L.zarr", **PLAIN) as factor:
        before = np.asarray(factor)
        with pytest.raises(oc.errors.OutputError, match="read as this factor"):
            factor.save("L.zarr", replace=True)
        assert np.array_equal(np.asarray(factor), before)


def test_a_name_decides():
    with pytest.raises(FileNotFoundError, match="there is no Zarr group"):
        oc.load("none.zarr")
    with pytest.raises(ValueError, match=r"file://elsewhere/L is on a machine 'elsewhere'"):
        oc.load("file://elsewhere/L")
    with pytest.raises(ValueError, match="nobody-knows://x"):
        oc.load("nobody-knows://x")
    with pytest.raises(ValueError, match="two files for one L"):
        oc.cholesky(A, store="a.zarr", checkpoint="b.zarr", **PLAIN)
    oc.cholesky(A, store="a.zarr", checkpoint=f"file://{Path('a.zarr').absolute()}", **PLAIN).close()


# pickling, and the shell


@pytest.mark.parametrize("place", ["L.zarr", "memory://a/L.zarr"])
def test_a_factor_is_pickled_as_its_name(place):
    with oc.cholesky(A, store=place, **PLAIN) as factor:
        text = pickle.dumps(factor)
        assert len(text) < 1000
        assert bits(pickle.loads(text)) == np.asarray(factor).tobytes()
    oc.cholesky(2 * A, store=place, replace=True, **PLAIN).close()
    with pytest.raises(oc.errors.TierError, match="is another factor than the one that was pickled"):
        pickle.loads(text)


def test_a_store_is_pickled_for_workers():
    store = ZarrStore.create("L.zarr", GRID, height=5)
    with closing(pickle.loads(pickle.dumps(store))) as worker:
        filled(worker)
        worker.finish_window(Window(range(5), range(5)))
    store.complete()


def test_what_one_process_left_is_cut_into_other_blocks():
    there = [index for index in GRID.tiles() if index[1] < 2]
    with closing(ZarrStore.create("L.zarr", GRID, checkpoint={})) as store:
        filled(store, there).keep_unfinished()
        store.flush()
    with closing(ZarrStore.open_unfinished("L.zarr")) as store:
        store.take_over()
        assert not store.has_windows and store.finished_windows() == []
        store.cut_anew(2)
    assert zarr.open_group("L.zarr", mode="r")["checksums"].chunks == (2, 2)
    with closing(ZarrStore.open_unfinished("L.zarr")) as store:
        assert store.has_windows and {window.columns.start for window in store.finished_windows()} == {0}
        assert sorted(store.verify_tiles().good) == sorted(there)
        store.take_over()
        filled(store, set(GRID.tiles()) - set(there)).complete()
        assert contents(store).tobytes() == contents(filled(MemoryStore(GRID))).tobytes()


def test_the_command_factors_into_a_group(capsys):
    np.save("A.npy", A)
    words = ["factor", "A.npy", "--store", "L.zarr", "--tile-size", "32", "--devices", "host:0", "--memory-budget", "200 KiB"]
    assert main([*words, "--quiet"]) == 0
    assert bits(oc.load("L.zarr")) == bits(oc.cholesky(A, **PLAIN))
    assert main([*words, "--quiet"]) == 2
    assert "L.zarr is a factor already; give another name, remove it, or replace it by --force" in capsys.readouterr().err
    assert main([*words, "--quiet", "--force"]) == 0
    assert main([*words, "--quiet", "--resume"]) == 2  # it is no checkpoint
    words[3] = "memory://shell/L.zarr"
    assert main([*words, "--quiet", "--resume"]) == 2
    assert "there is no checkpoint memory://shell/L.zarr to go on from" in capsys.readouterr().err
    assert main([*words, "--quiet", "--checkpoint"]) == 0
    assert main(["verify", "memory://shell/L.zarr"]) == 0


@pytest.mark.parametrize(("missing", "call"), [("google_crc32c", "store"), ("zarr", "matrix"), ("fsspec", "url")])
def test_what_is_not_installed_is_named(missing, call, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    with pytest.raises(oc.errors.MissingPackageError, match=r"\[cluster\]"):
        if call == "store":
            oc.cholesky(A, store="L.zarr")
        elif call == "matrix":
            oc.cholesky("A.zarr")
        else:
            oc.cholesky(A, store="memory://x/L.zarr")
