"""A file of A that changes while it is read is an error that names it; one that is replaced under its name stays readable."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import ooc_chol as oc
from tests.host.matrices import FAMILIES
from tests.inside.dense import factor as factor_module
from tests.inside.dense import mixed_local, solved
from tests.inside.memory import sources

pytestmark = pytest.mark.usefixtures("no_hang", "one_blas_thread")

N, NB = 150, 32
A = FAMILIES["exponential"](N)
LONG_AGO = 10**18  # nanoseconds: no clock of a file system is so coarse that a change now has this time


@pytest.fixture
def path(tmp_path) -> Path:
    """A file with A, written long ago."""
    file = tmp_path / "a.npy"
    np.save(file, A)
    os.utime(file, ns=(LONG_AGO, LONG_AGO))
    return file


def by_name(path: Path) -> Path:
    return path


def as_map(path: Path) -> np.memmap:
    return np.load(path, mmap_mode="r")


def as_view_of_a_map(path: Path) -> np.ndarray:
    return np.load(path, mmap_mode="r")[::-1, ::-1][::-1, ::-1]


GIVEN = pytest.mark.parametrize("given", [by_name, as_map, as_view_of_a_map])
THRESHOLD = pytest.mark.parametrize("threshold", [None, 1e-4])


def write_in_place(path: Path) -> None:
    """Change one entry of the lower triangle, by little."""
    with path.open("r+b") as file:
        file.seek(-8 * N, os.SEEK_END)
        file.write(np.array([A[-1, 0] * (1 + 1e-6)]).tobytes())


def write_nan_in_place(path: Path) -> None:
    """As a writer that is not done yet."""
    with path.open("r+b") as file:
        file.seek(-8 * N * N, os.SEEK_END)
        file.write(np.full(N * N, np.nan).tobytes())


def append(path: Path) -> None:
    """Let the file grow."""
    with path.open("ab") as file:
        file.write(b"more")
    os.utime(path, ns=(LONG_AGO, LONG_AGO))


CHANGES = {"contents": (write_in_place, "written at"), "NaN": (write_nan_in_place, "written at"), "size": (append, r"\d+ bytes")}


def once(change, path):
    """A function that changes the file at its first call, whatever it is given."""
    done = []

    def call(*_):
        if not done:
            done.append(True)
            change(path)

    return call


@GIVEN
@THRESHOLD
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_during_the_run_is_an_error(tmp_path, path, given, threshold, change):
    before = len(os.listdir("/proc/self/fd"))
    a = given(path)
    maps = len(os.listdir("/proc/self/fd")) - before
    function, text = CHANGES[change]
    with pytest.raises(oc.errors.TierError, match=rf"a\.npy.*{text}.*while it was read"):
        oc.cholesky(a, precision_threshold=threshold, tile_size=NB, store=tmp_path / "L.factor", progress=once(function, path))
    assert os.listdir(tmp_path) == ["a.npy"], "what was factored is no factor of anything"
    assert len(os.listdir("/proc/self/fd")) - before == maps


@GIVEN
@pytest.mark.parametrize("call", [oc.cholesky, oc.plan])
def test_a_file_that_changes_while_norms_are_measured_is_an_error(path, given, call, monkeypatch):
    measure, change = mixed_local.measure_matrix, once(write_in_place, path)
    monkeypatch.setattr(mixed_local, "measure_matrix", lambda *words, **options: (measure(*words, **options), change())[0])
    with pytest.raises(oc.errors.TierError, match="while it was read"):
        call(given(path), precision_threshold=1e-4, tile_size=NB)


@GIVEN
def test_a_file_that_changes_while_a_solution_is_refined_is_an_error(path, given, monkeypatch):
    with oc.cholesky(A, precision_threshold=1e-3, tile_size=NB) as factor:
        x = factor.solve(np.ones(N), refine=True, a=given(path))
        assert np.allclose(A @ x, 1.0)
        refine, change = solved.refined_solve, once(write_in_place, path)
        monkeypatch.setattr(solved, "refined_solve", lambda *w, **o: (change(), refine(*w, **o))[1])
        with pytest.raises(oc.errors.TierError, match="while it was read"):
            factor.solve(np.ones(N), refine=True, a=given(path))


@GIVEN
@pytest.mark.parametrize("change", [write_in_place, write_nan_in_place])
def test_a_file_that_changes_while_residuals_are_computed_is_an_error(path, given, change, monkeypatch):
    with oc.cholesky(A, tile_size=NB) as factor:
        assert factor.residual(given(path)).max_scaled_over_sqrt_n < 4
        sample, touch = factor_module.sample_residual, once(change, path)
        monkeypatch.setattr(factor_module, "sample_residual", lambda *w, **o: (touch(), sample(*w, **o))[1])
        with pytest.raises(oc.errors.TierError, match="while it was read"):
            factor.residual(given(path))


def replace(path: Path) -> None:
    """Another matrix takes the name, as careful programs write."""
    np.save(path.with_name("other.npy"), 2 * A)
    os.replace(path.with_name("other.npy"), path)


@GIVEN
@THRESHOLD
def test_a_file_that_is_replaced_stays_readable_and_right(tmp_path, path, given, threshold):
    a, expected = given(path), oc.cholesky(A, precision_threshold=threshold, tile_size=NB)
    with oc.cholesky(a, precision_threshold=threshold, tile_size=NB, progress=once(replace, path)) as factor:
        assert np.array_equal(np.asarray(factor), np.asarray(expected))
    assert np.array_equal(np.load(path), 2 * A)


def test_a_file_that_is_replaced_between_its_header_and_its_entries_is_an_error(path, monkeypatch):
    """The layout of one file says nothing of the entries of another."""
    layout = sources.npy_layout
    monkeypatch.setattr(sources, "npy_layout", lambda name: (layout(name), replace(path))[0])
    with pytest.raises(oc.errors.TierError, match=r"a\.npy.*another file.*while it was read"):
        oc.cholesky(path, tile_size=NB)


def test_a_matrix_that_is_overwritten_changes_as_it_should(path):
    a = np.load(path, mmap_mode="r+")
    with oc.cholesky(a, tile_size=NB, overwrite=True) as factor:
        assert np.array_equal(np.asarray(factor), np.asarray(oc.cholesky(A, tile_size=NB)))


@THRESHOLD
def test_a_file_that_is_only_read_by_others_is_no_error(path, threshold):
    def read(*_):
        np.load(path)

    oc.cholesky(path, precision_threshold=threshold, tile_size=NB, progress=read).close()


@THRESHOLD
def test_a_map_whose_pages_are_written_back_meanwhile_has_not_changed(tmp_path, threshold):
    """The caller filled the map just before; the system writes its pages to the disk when it likes."""
    a = np.lib.format.open_memmap(tmp_path / "a.npy", mode="w+", dtype=np.float64, shape=(N, N))
    a[...] = A
    with oc.cholesky(a, precision_threshold=threshold, tile_size=NB, progress=lambda *_: a.flush()) as factor:
        assert np.array_equal(np.asarray(factor), np.asarray(oc.cholesky(A, precision_threshold=threshold, tile_size=NB)))
