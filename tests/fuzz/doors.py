"""Every way in which a file comes into the package, with names that are no good file: as ``python -m tests.fuzz.doors GROUP``.

A process of its own, which names each case before it begins: one that stands still is ended by an alarm, and was named last.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, save_npz

import ooc_chol as oc
import ooc_chol.toolbox as tb
from benchmarks.competition.data import read_competition
from ooc_chol.apps import geostat, imputation, spectral
from ooc_chol.apps.geostat import DataSpec, load_dataset
from tests.fuzz import attacks, places, tables
from tests.fuzz.verdicts import unwanted, where
from tests.fuzz.worker import limit_memory
from tests.inside.cli import main, make_parser
from tests.inside.dense import verify
from tests.inside.geostat import results, write_json
from tests.inside.spectral import read_image

#: Seconds for one case, in which nothing is computed that takes a tenth of one on an idle machine.
_SECONDS = 60
_N = 12


@dataclass(frozen=True)
class Door:
    """One argument that is a name of a file: what takes it, and a file that is good for it."""

    name: str
    file: str  #: Name of the good file, from the folder of all
    enter: Callable[[Path], Any] | tuple[str, ...]  #: A call, or the words of a command with ``{}`` for the name
    #: Cases in which it is no error: a file that is made where none is, and the like.
    forgives: Collection[str] = ()
    #: Whether the file is good for others only.
    is_strange: bool = False

    def open(self, path: Path) -> str:
        """What came of a name: "read", "refused", or what is wrong."""
        if not isinstance(self.enter, tuple):
            try:
                self.enter(path)
            except Exception as error:
                said = unwanted(error)
                if said.startswith("a message of more") and os.fspath(path) in str(error):  # the name is as long
                    said = ""
                return f"{said}: {where(error)}" if said else f"refused: {error!s:.300}"
            return "read"
        told = io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
            try:
                status = main([word.replace("{}", os.fspath(path)) for word in self.enter])
            except SystemExit as ended:  # of the parser, which refuses an argument
                status = int(ended.code or 0)
            except Exception as error:
                return f"a traceback: {where(error)}"
        if "Traceback" in told.getvalue() or (status == 2 and "ooc-chol" not in told.getvalue()):
            return f"status {status}: {told.getvalue()[-300:]}"
        return {0: "read", 1: "refused", 2: f"refused: {told.getvalue()[-300:]}"}.get(status, f"status {status}")


# good files


def _make_all(folder: Path) -> None:
    """A good file for every door."""
    os.chdir(folder)
    matrix, graph = attacks.matrix(_N), _graph()
    np.save("a.npy", matrix)
    np.save("x.npy", np.ones(_N))
    np.savetxt("v.txt", np.ones(_N))
    np.savetxt("xy.txt", np.ones((_N, 2)))
    np.save("image.npy", np.arange(36.0).reshape(6, 6))
    oc.cholesky(matrix, tile_size=8).save("l.ooc")
    oc.cholesky(matrix, tile_size=8, trace=True).trace.save("t.pftrace")
    save_npz("g.npz", graph)
    save_npz("ring.npz", diags_array([1.0, 1.0], offsets=[-1, 1], shape=(400, 400)).tocsr())
    oc.block_csr(graph, store="g.oocsr").close()
    rows, columns = graph.nonzero()
    pairs = [(i, j) for i, j in zip(rows.tolist(), columns.tolist(), strict=True) if i < j]
    Path("g.txt").write_text("".join(f"{i} {j}\n" for i, j in pairs))
    Path("g.csv").write_text("".join(f"{i},{j}\n" for i, j in pairs))
    lines = "".join(f"{i + 1} {j + 1} 1.0\n" for i, j in zip(rows.tolist(), columns.tolist(), strict=True))
    Path("g.mtx").write_text(f"%%MatrixMarket matrix coordinate real general\n{_N} {_N} {graph.nnz}\n{lines}")
    neighbours = [" ".join(str(j + 1) for j in graph[[i]].indices) for i in range(_N)]
    Path("g.graph").write_text("\n".join([f"{_N} {len(pairs)}", *neighbours, ""]))
    Path("m").mkdir()
    np.save("m/indptr.npy", graph.indptr)
    np.save("m/indices.npy", graph.indices)
    Path("m/shape.json").write_text(f"[{_N}, {_N}]")
    spectral.write_partition("g.part", np.zeros(_N, int))
    _make_tensors()
    _make_pictures()
    _make_zarr(matrix)
    _make_tables()


def _graph() -> csr_array:
    """A ring with chords."""
    at = np.arange(_N)
    rows, columns = np.concatenate([at, at]), np.concatenate([(at + 1) % _N, (at + 5) % _N])
    half = csr_array((np.ones(2 * _N), (rows, columns)), shape=(_N, _N))
    return csr_array(((half + half.T) > 0).astype(float))


def _make_tensors() -> None:
    tensor = np.random.default_rng(3).standard_normal((_N, 3, 3))
    mask = np.arange(_N) % 4 > 0
    imputation.write_tensor("x3.npy", tensor)
    imputation.write_tensor("x3.npz", tensor, mask=mask)
    imputation.write_tensor("x3.nc", tensor)
    np.save("mask.npy", mask)
    np.savetxt("mask.txt", mask, fmt="%d")


def _make_pictures() -> None:
    from PIL import Image

    picture = Image.fromarray((np.arange(36).reshape(6, 6) * 7).astype(np.uint8))
    for ending in ("png", "tif", "jpg", "bmp"):
        picture.save(f"image.{ending}")


def _make_zarr(matrix: np.ndarray) -> None:
    import zarr

    zarr.create_array(store="a.zarr", data=matrix, chunks=(6, 6))
    zarr.create_array(store="a2.zarr", data=matrix, chunks=(6, 6), zarr_format=2)
    zarr.create_group("g.zarr").create_array("a", data=matrix, chunks=(6, 6))
    oc.cholesky(matrix, tile_size=6, store="l.zarr").close()


def _make_tables() -> None:
    good = {str(name): make for name, _, make, *_ in tables.readers(None, None)}  # type: ignore[arg-type]
    for name, file in _TABLES.items():
        good[name](Path(file))
    spec = DataSpec("csv", os.path.abspath("t.csv"), ("x", "y"), "z", crs="EPSG:28992")
    found = geostat.fit(load_dataset(spec).observations, **tables._FIT)
    write_json(Path("flat.json"), results.result_content(spec, found), replace=True)
    geojson = {"type": "Polygon", "coordinates": [[[-1, -1], [-1, 2], [2, 2], [2, -1], [-1, -1]]]}
    feature = {"type": "Feature", "properties": {}, "geometry": geojson}
    Path("area.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    np.savez(
        "modis.npz", lon_axis=np.arange(3.0), lat_axis=np.arange(3.0),
        **{f"{part}_{name}": np.arange(3) for part in ("train", "test") for name in ("ix", "iy", "dn")},
    )  # fmt: skip
    Path("sites.csv").write_text("x,y\n0.111,0.222\n0.333,0.444\n")
    Path("heaton.csv").write_text("Lon,Lat,MaskTemp,TrueTemp\n0,0,1,1\n1,0,NA,2\n0,1,3,3\n")
    Path("values.csv").write_text("range,loglik\n0.1,-3\n0.2,-2\n0.3,-3\n")
    Path("rates").mkdir()
    Path("rates/rates.json").write_text("{}")


#: Files that the mutations of tables have, by the name of their reader.
_TABLES = {
    "csv": "t.csv", "parquet": "t.parquet", "netcdf3": "t3.nc", "netcdf4": "t4.nc", "geopackage": "t.gpkg", "asc": "r.asc",
    "raster-netcdf": "r.nc", "result": "model.json", "log": "log.jsonl",
}  # fmt: skip

# doors

#: Cases of doors where a file is made if none is there, and of those where one without lines is a graph without edges.
_MADE, _EMPTY = ("nothing", "an empty file", "a link to nothing"), ("an empty file",)
_DENSE = {"tile_size": 6, "devices": "host:0"}


def _packed(source: Any) -> None:
    with oc.block_csr(source) as packed:
        packed.tocsr()


def _rates(path: Path) -> None:
    os.environ["OOC_CHOL_CACHE"] = str(path.parent)
    str(oc.plan(40, tile_size=8))


def _impute(path: Path) -> None:
    tensor = np.random.default_rng(3).standard_normal((_N, 3, 3))
    oc.impute(tensor, np.arange(_N) % 4 > 0, _graph(), checkpoint=path, devices="host:0")


def _dense_calls() -> Iterator[Door]:
    for file in (
        "a.npy",
        "a.zarr/zarr.json",
        "a.zarr/c/1/0",
        "a2.zarr/.zarray",
        "a2.zarr/1.0",
        "g.zarr/zarr.json",
        "g.zarr/a/zarr.json",
    ):
        # A missing chunk is zeros where its mirror image is another matter, and a group may lack its own description.
        yield Door(
            f"cholesky {file}",
            file,
            lambda path, file=file: oc.cholesky(_whole(path, file), **_DENSE).close(),
            _MADE[:1] if "c/" in file or "1.0" in file else (),
        )
    yield Door("plan a.npy", "a.npy", lambda path: oc.plan(path, **_DENSE))
    yield Door("logdet a.npy", "a.npy", lambda path: oc.logdet(path, **_DENSE))
    for file in ("l.ooc", "l.zarr/zarr.json", "l.zarr/L/c/1/0", "l.zarr/checksums/c/0/0"):
        yield Door(f"load {file}", file, lambda path, file=file: _loaded(_whole(path, file)))
        yield Door(f"verify {file}", file, lambda path, file=file: _verified(_whole(path, file)))
    yield Door(
        "checkpoint", "l.ooc", lambda path: oc.cholesky(attacks.matrix(_N), checkpoint=path, **_DENSE).close(), _MADE, True
    )
    yield Door(
        "unfinished checkpoint", "l.ooc", _from_partial, (*_MADE, "a name with a null character", "a name of 5000 letters")
    )
    yield Door("Trace.load", "t.pftrace", oc.Trace.load)
    yield Door("input_npy", "a.npy", tb.input_npy)
    yield Door("input_npz", "g.npz", lambda path: tb.input_npz(path, lambda headers: headers))
    yield Door("input_bytes", "v.txt", lambda path: tb.input_bytes(path, 1 << 20), (*_EMPTY, "/proc/self/mem"))
    yield Door("input_lines", "v.txt", lambda path: list(tb.input_lines(path, 1 << 10)), _EMPTY)
    yield Door("rates", "rates/rates.json", _rates, CASES)


def _whole(path: Path, file: str) -> Path:
    """The folder of a Zarr array or group, if it is a file in one that is bad."""
    return Path(*path.parts[: len(path.parts) - len(Path(file).parts) + 1])


def _loaded(path: Path) -> None:
    with oc.load(path) as factor:
        np.asarray(factor)


def _verified(path: Path) -> None:
    if not (found := verify(path)).is_whole:
        raise oc.errors.DamagedFileError(str(found), str(path))


def _from_partial(path: Path) -> None:
    """Go on from a name whose unfinished file is bad."""
    path.rename(path.with_name("k.ooc.partial")) if os.path.lexists(path) else None
    try:
        oc.cholesky(attacks.matrix(_N), checkpoint=path.with_name("k.ooc"), **_DENSE).close()
    finally:
        for left in path.parent.glob("k.ooc*"):
            places.clear(left)


def _sparse_calls() -> Iterator[Door]:
    for file in ("g.npz", "g.mtx", "g.oocsr", "g.txt", "g.csv", "g.graph", "m/indptr.npy", "m/indices.npy", "m/shape.json"):
        forgives = {"m/shape.json": ("nothing",), "g.txt": _EMPTY, "g.csv": _EMPTY}  # without a shape the matrix is square
        yield Door(f"block_csr {file}", file, lambda path, file=file: _packed(_whole(path, file)), forgives.get(file, ()))
    for file in ("g.npz", "g.graph"):
        yield Door(f"as_graph {file}", file, lambda path: spectral.as_graph(str(path)))
        yield Door(f"spectral.read_graph {file}", file, spectral.read_graph)
    yield Door("eigsh", "g.mtx", lambda path: oc.eigsh(path, 2, devices="host:0"))
    yield Door("multiply", "g.mtx", lambda path: oc.multiply(path, np.ones(_N)))
    yield Door("svds", "g.npz", lambda path: oc.svds(path, 2, devices="host:0"))
    yield Door("edge_list", "g.txt", oc.edge_list, _EMPTY)
    yield Door("metis_graph", "g.graph", oc.metis_graph)
    yield Door("eigsh checkpoint", "g.npz", lambda path: oc.eigsh("ring.npz", 2, checkpoint=path, devices="host:0"), _MADE, True)
    yield Door("svds checkpoint", "g.npz", lambda path: oc.svds("ring.npz", 2, checkpoint=path, devices="host:0"), _MADE, True)
    yield Door("impute checkpoint", "g.npz", _impute, _MADE, True)


def _application_calls() -> Iterator[Door]:
    yield Door("read_partition", "g.part", spectral.read_partition)
    for ending in ("png", "tif", "jpg", "bmp"):
        yield Door(f"read_image {ending}", f"image.{ending}", read_image)
    image = np.arange(36.0).reshape(6, 6)
    yield Door("normalized_cut mask", "image.png", lambda path: spectral.normalized_cut(image, sigma_i=9.0, mask=path))
    for ending in ("npy", "npz", "nc"):
        yield Door(f"read_tensor {ending}", f"x3.{ending}", imputation.read_tensor)
    for file in ("mask.npy", "mask.txt"):
        yield Door(f"read_mask {file}", file, lambda path: imputation.read_mask(path, (_N, 3, 3)))
    for file in ("a.npy", "g.txt", "g.csv", "g.npz"):
        yield Door(f"imputation.read_graph {file}", file, imputation.read_graph, _EMPTY if "g." in file else ())
    for name, file in _TABLES.items():
        if name not in ("result", "log", "asc", "raster-netcdf"):
            yield Door(f"load_table {name}", file, lambda path: geostat.load_table(path, ("x", "y", "z")))
    for file in ("r.asc", "r.nc"):
        yield Door(f"read_raster {file}", file, geostat.read_raster)
    grid = geostat.Area(tables._GRID)
    for file in ("area.geojson", "r.asc", "r.nc"):  # GeoJSON is in degrees, and the layer is not
        yield Door(f"masked {file}", file, lambda path: geostat.masked(grid, path, tables._layer().spec), (), "geo" in file)
    yield Door("read_result", "model.json", results.read_result)
    yield Door("fit checkpoint", "log.jsonl", tables._go_on, _MADE)
    for file in ("modis.npz", "heaton.csv"):
        yield Door(f"read_competition {file}", file, read_competition)


def _commands() -> Iterator[Door]:
    """An entry for every argument of a command that is the name of a file to read."""
    fit, graph = ("--x", "x", "--y", "y", "--value", "z", "--smoothness", "0.5", "--max-evaluations", "3"), ("--seed", "1")
    model = ("model.json",)
    for words, file in (
        (("plan", "--matrix", "{}"), "a.npy"),
        (("report", "--matrix", "{}"), "a.npy"),
        (("factor", "{}", "--store", "out.ooc", "--force"), "a.npy"),
        (("verify", "{}"), "l.ooc"),
        (("sparse", "pack", "{}", "-o", "out.oocsr", "--force"), "g.mtx"),
        (("sparse", "info", "{}"), "g.oocsr"),
        (("sparse", "multiply", "{}", "x.npy"), "g.mtx"),
        (("sparse", "multiply", "g.mtx", "{}"), "x.npy"),
        (("eigsh", "{}", "-k", "2"), "g.mtx"),
        (("svds", "{}", "-k", "2"), "g.mtx"),
        (("trace", "summary", "{}"), "t.pftrace"),
        (("impute", "fit", "{}", "--graph", "g.txt"), "x3.npz"),
        (("impute", "fit", "x3.npz", "--graph", "{}"), "g.txt"),
        (("impute", "fit", "x3.npz", "--graph", "g.txt", "--mask", "{}"), "mask.txt"),
        (("spectral", "bisect", "{}", *graph), "g.graph"),
        (("spectral", "bisect", "g.txt", "--vertex-weights", "{}", *graph), "x.npy"),
        (("spectral", "bisect", "g.txt", "--coordinates", "{}", "--picture", "out.png", "--force", *graph), "xy.txt"),
        (("spectral", "partition", "{}", "3", *graph), "g.txt"),
        (("spectral", "partition", "g.txt", "3", "--vertex-weights", "{}", *graph), "v.txt"),
        (("spectral", "partition", "g.txt", "3", "--coordinates", "{}", "--picture", "out.png", "--force"), "xy.txt"),
        (("spectral", "segment", "{}", "--sigma-i", "9"), "image.npy"),
        (("spectral", "segment", "image.npy", "--sigma-i", "9", "--mask", "{}"), "image.png"),
        (("geostat", "variogram", "{}", *fit[:6]), "t.csv"),
        (("geostat", "fit", "{}", *fit), "t.csv"),
        (("geostat", "predict", "{}", "t.csv", "--output", "out.csv", "--force"), "model.json"),
        (("geostat", "predict", *model, "{}", "--output", "out.csv", "--force"), "t.csv"),
        (("geostat", "predict", *model, "t.csv", "{}", "--output", "out.csv", "--force"), "t.csv"),
        (("geostat", "predict", "flat.json", "--grid", "4,4", "--mask", "{}", "--output", "out.csv", "--force"), "r.asc"),
        (("geostat", "simulate", "{}", "--grid", "4,4", "--output", "out.csv", "--force"), "flat.json"),
        (("geostat", "simulate", *model, "--sites", "{}", "--output", "out.csv", "--force"), "t.csv"),
        (("geostat", "simulate", *model, "--sites", "t.csv", "--conditional", "{}", "--output", "out.csv", "--force"), "t.csv"),
        (("geostat", "simulate", "flat.json", "--grid", "4,4", "--mask", "{}", "--output", "out.csv", "--force"), "r.asc"),
        (("geostat", "cv", "{}"), "model.json"),
        (("geostat", "cv", *model, "{}"), "t.csv"),
        (("geostat", "cv", *model, "t.csv", "--how", "gaps", "--sites", "{}"), "sites.csv"),
        (("geostat", "loglik", "{}", "--model", "model.json"), "t.csv"),
        (("geostat", "loglik", "t.csv", "--model", "{}"), "model.json"),
        (("geostat", "convert", "{}", "--convert-to", "gstools"), "model.json"),
        (("geostat", "plot", "variogram", "{}", "--output", "out.png", "--force"), "model.json"),
        (("geostat", "plot", "variogram", *model, "{}", "--output", "out.png", "--force"), "t.csv"),
        (("geostat", "plot", "map", "flat.json", "--mask", "{}", "--output", "out.png", "--force"), "r.asc"),
    ):  # fmt: skip
        yield Door(" ".join(words), file, words, _EMPTY if words[-2:] == ("--graph", "{}") else ())
    yield Door("eigsh checkpoint", "g.oocsr", ("eigsh", "ring.npz", "-k", "2", "--checkpoint", "{}"), _MADE, True)
    yield Door("impute checkpoint", "g.oocsr", ("impute", "fit", "x3.npz", "--graph", "g.txt", "--checkpoint", "{}"), _MADE, True)
    yield Door("fit --checkpoint", "log.jsonl", ("geostat", "fit", "t.csv", *fit, "--checkpoint", "{}"), _MADE)
    profile = ("geostat", "plot", "profile", "model.json", "--output", "out.png", "--force", "--values", "{}")
    yield Door("profile values", "values.csv", profile, _MADE, True)  # it is of another fit


#: All doors, in groups of a process each.
GROUPS: dict[str, Callable[[], Iterator[Door]]] = {
    "dense": _dense_calls,
    "sparse": _sparse_calls,
    "applications": _application_calls,
    "commands": _commands,
}
#: Arguments of commands that name what is written, or a folder.
WRITTEN = (
    "--output", "-o", "--picture", "--trace", "--report", "--store", "--plot", "--checkpoint", "--folder", "--traces",
    "--work-folder",
)  # fmt: skip


def path_arguments() -> Iterator[tuple[str, ...]]:
    """Command and argument of every name of a file that commands take to read."""
    files = ("DATA.csv", "SITES.csv", "MODEL.json", "FILE", "DATA")

    def below(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        getattr(parser, "complete", lambda: None)()
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, child in action.choices.items():
                    yield from below(child, (*words, name))
                continue
            is_file = action.type is Path or getattr(action.type, "__name__", "") == "place" or action.metavar in files
            if is_file and not set(action.option_strings) & set(WRITTEN):
                yield (*words, (action.option_strings or [action.dest])[-1])

    yield from below(make_parser(), ())


# cases


def _cut(path: Path, good: bytes) -> None:
    path.write_bytes(good[: len(good) // 2])


#: What stands at the name, or what the name is; of all but what is cut short nothing can be read.
CASES: dict[str, Callable[[Path, bytes], None] | str] = {
    **{name: make for name, make in places.PLACES.items() if name != "a file that may not be read"},
    "a good file": lambda path, good: path.write_bytes(good) and None,
    "nothing": lambda path, good: None,
    "an empty file": lambda path, good: path.write_bytes(b"") and None,
    "a file that was cut short": _cut,
    "a name with a null character": "a\0b",
    "a name of 5000 letters": "n" * 5000,
}
#: What may be read all the same: a text that was cut, and what has its length within.
_READABLE = ("a file that was cut short", "a good file, and 8 TiB of nothing")


def run(group: str) -> Iterator[tuple[str, str, str]]:
    """Door, case and what is wrong of all cases of a group, each told before it begins."""
    for door, (case, make) in itertools.product(GROUPS[group](), CASES.items()):
        shutil.rmtree("bad", ignore_errors=True)
        first = Path(door.file).parts[0]
        if len(Path(door.file).parts) > 1:
            shutil.copytree(first, Path("bad") / first)
        else:
            Path("bad").mkdir()
        path, good = Path("bad") / door.file, Path(door.file).read_bytes()
        path.unlink(missing_ok=True)
        if isinstance(make, str):
            if path.parent != Path("bad"):  # a name in a folder is ours
                continue
            path = Path("bad", make + path.suffix)
        else:
            make(path, good)
        print(json.dumps({"door": door.name, "case": case}), file=sys.__stdout__, flush=True)
        signal.alarm(_SECONDS)
        came = door.open(path)
        signal.alarm(0)
        wanted = "refused" if door.is_strange or case != "a good file" else "read"
        is_fine = came.startswith(wanted) or (came == "read" and (case in _READABLE or case in door.forgives))
        yield door.name, case, "" if is_fine else came


def _main() -> None:
    """Run a group, and print what is wrong as JSON."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="doors-") as folder:
        _make_all(Path(folder))
        limit_memory()
        for door, case, problem in run(sys.argv[1]):
            if problem:
                print(json.dumps({"door": door, "case": case, "problem": problem}), file=sys.__stdout__, flush=True)
        os.chdir("/")
    print(json.dumps({"done": True}), flush=True)


if __name__ == "__main__":
    _main()
