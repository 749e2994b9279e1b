"""Geostatistics with factorizations on workers of Dask: the likelihood to the bit, fits and predictions of one machine."""

from __future__ import annotations

import copy
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest

import ooc_chol as oc
import ooc_chol.toolbox as tb
from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import covariance_source
from tests.apps.geostat.models import MODELS
from tests.inside.cli import main
from tests.inside.geostat import derivative_source

N = 96
HOW = {"tile_size": 32, "devices": "host:0"}


def observations(n: int = N):
    places = np.random.default_rng(5).uniform(size=(n, 2))
    values = np.sin(5 * places[:, 0]) + np.cos(4 * places[:, 1]) + 0.1 * np.random.default_rng(6).standard_normal(n)
    return geostat.make_observations(places, values)


@pytest.mark.commit
def test_the_likelihood_has_the_bits_of_one_machine(two_workers, one_blas_thread):
    model = geostat.Matern(1.2, 0.3, 1.5, 0.05)
    here = geostat.log_likelihood(observations(), model, settings=geostat.FactorSettings(**HOW))
    settings = geostat.FactorSettings(client=two_workers, **HOW)
    there = geostat.log_likelihood(observations(), model, settings=settings)
    assert there.loglik == here.loglik and np.array_equal(there.coefficients, here.coefficients)


def test_places_that_coincide_and_pivots_are_named_by_rows_as_on_one_machine(two_workers, one_blas_thread):
    """Two places that are one; and a line too smooth for no nugget, which comes last in the matrix and first in the data."""
    line = np.column_stack([np.linspace(9.0, 9.001, 32), np.full(32, 9.0)])
    sites = np.vstack([line, observations(64).coordinates])
    model, values = geostat.Matern(1.0, 1.0, 2.5), np.arange(96.0)
    again = sites[32:].copy()
    again[60] = again[3]
    there, here = geostat.FactorSettings(client=two_workers, **HOW), geostat.FactorSettings(**HOW)
    for data, rows in (
        (geostat.make_observations(sites, values), range(32)),
        (geostat.make_observations(again, values[32:]), (3, 60)),
    ):
        told = []
        for settings in (there, here):
            with pytest.raises(geostat.SingularCovarianceError) as caught:
                geostat.log_likelihood(data, model, settings=settings)
            told.append((caught.value.rows, caught.value.minor, str(caught.value)))
        assert told[0] == told[1] and set(told[0][0]) <= set(rows)


@pytest.mark.parametrize("traces", ["exact", "probes"])
def test_gradient_and_prediction_are_those_of_one_machine(two_workers, one_blas_thread, traces):
    model, data = geostat.Matern(1.2, 0.3, 1.5, 0.05), observations()
    there, here = geostat.FactorSettings(client=two_workers, **HOW), geostat.FactorSettings(**HOW)
    found, known = (geostat.log_likelihood_gradient(data, model, traces=traces, settings=each) for each in (there, here))
    assert found.names == known.names
    assert np.allclose(found.gradient, known.gradient, rtol=1e-9)
    sites = np.random.default_rng(7).uniform(size=(9, 2))
    predicted, expected = (geostat.predict(data, model, sites, settings=each) for each in (there, here))
    assert np.allclose(predicted.mean, expected.mean, rtol=1e-10)
    assert np.allclose(predicted.variance, expected.variance, rtol=1e-8)
    with geostat.kriging(data, model, settings=there) as kriged:
        assert np.allclose(kriged.predict(sites, variance=False).mean, expected.mean, rtol=1e-10)
        certified = kriged.predict(sites, certified=True)
    assert np.allclose(certified.mean, expected.mean, rtol=1e-10) and certified.half_width.is_certified


@pytest.mark.parametrize("threshold", [None, 1e-6])
def test_a_plan_of_settings_serves_their_factorizations(two_workers, one_blas_thread, threshold):
    settings = geostat.FactorSettings(client=two_workers, precision_threshold=threshold, **HOW)
    source = covariance_source(geostat.Matern(1.2, 0.3, 1.5, 0.05), observations().coordinates)
    with settings.factor(source, None, trace=False) as first:
        for plan in (settings.plan(source), first.plan):
            with replace(settings, planned=plan).factor(source, None, trace=False) as again:
                assert again.plan.blocks == plan.blocks and np.array_equal(np.asarray(again), np.asarray(first))
        assert settings.reusing(first.plan) is settings
    with pytest.raises(ValueError, match="of order 96, but the matrix has order 95"):
        replace(settings, planned=first.plan).factor(np.eye(95), None, trace=False)


def test_a_fit_on_a_cluster_finds_what_a_fit_here_finds(two_workers, one_blas_thread):
    data = observations(40)
    how = {"covariance": geostat.Matern(1.0, 0.2, 1.5, 0.1), "fixed": ("smoothness",), "max_evaluations": 4}
    found = geostat.fit(data, settings=geostat.FactorSettings(client=two_workers, **HOW), **how)
    known = geostat.fit(data, settings=geostat.FactorSettings(**HOW), **how)
    assert found.model.range == pytest.approx(known.model.range, rel=1e-6)
    assert found.loglik == pytest.approx(known.loglik, rel=1e-9)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_covariance_travels_to_workers(name):
    model, sites = MODELS[name]
    places = sites(20, 0)
    for source in (covariance_source(model, places), *(derivative_source(model, places, each) for each in model.parameters[:1])):
        there = cloudpickle.loads(cloudpickle.dumps(source))
        rows, cols = range(2, 7), range(4)
        made, known = np.empty((5, 4)), np.empty((5, 4))
        there.function(rows, cols, made, None)
        source.function(rows, cols, known, None)
        assert np.array_equal(made, known)


def test_cuda_text_travels_without_what_was_compiled():
    tile = tb.cuda_source("text", "name", 2.0, np.arange(3.0))
    tile._ready[0] = (lambda: None, ())
    there = cloudpickle.loads(cloudpickle.dumps(tile))
    assert (there.code, there.name, there._ready) == ("text", "name", {})
    assert there.arguments[0] == 2.0 and np.array_equal(there.arguments[1], np.arange(3.0))


def test_settings_are_copied_with_their_cluster_and_refuse_places_of_one_machine():
    client = object()
    settings = geostat.FactorSettings(client=client, **HOW)
    assert copy.deepcopy(settings).client is client and settings.in_fp64().client is client
    assert settings.here == {"devices": None, "memory_budget": None}
    for place in ({"store": "L.factor"}, {"host_budget": "1 GiB"}):
        with pytest.raises(ValueError, match="memory of its workers"):
            geostat.FactorSettings(client=client, **place)


@pytest.mark.usefixtures("clusters")
def test_the_command_fits_on_a_cluster_that_it_starts(dask_threads, tmp_path, capsys):
    data = observations(20)
    lines = [f"{x},{y},{z}" for (x, y), z in zip(data.coordinates, data.values, strict=True)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["x,y,z", *lines]) + "\n")
    words = ["geostat", "fit", str(path), "--x", "x", "--y", "y", "--value", "z", "--smoothness", "1.5", "--max-evaluations", "2"]
    assert main([*words, "--cluster", "local:1", "--devices", "host:0"]) == 0
    said = capsys.readouterr()
    assert "leave --cluster out" in said.err and "range" in said.out


@pytest.mark.usefixtures("clusters")
def test_slurm_without_its_package_is_told(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "dask_jobqueue", None)
    with pytest.raises(oc.errors.MissingPackageError, match="dask-jobqueue"), oc.open_cluster("slurm:2"):
        pass
