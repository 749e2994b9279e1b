"""Mixed precision on workers of Dask: bits, formats, bounds and remedies of one machine."""

from __future__ import annotations

import dask.array
import numpy as np
import pytest

import ooc_chol as oc
from tests.entries import Entries
from tests.host.escalation_cases import CASES
from tests.host.mixed_precision import matern, measured

pytestmark = pytest.mark.filterwarnings("ignore::ooc_chol.errors.PrecisionWarning")
N, NB = 112, 16
A = matern(N, 1.5, 0.1, 0.01)


GIVEN = {
    "array": lambda a: a,
    "function": lambda a: oc.from_function(len(a), Entries(a)),
    "dask": lambda a: dask.array.from_array(a, chunks=(40, 31)),
}


@pytest.mark.parametrize(("given", "fp64", "nb"), [("array", "residue", 32), ("function", "native", 16), ("dask", "native", 16)])
@pytest.mark.commit
def test_formats_and_factor_are_those_of_one_machine_to_the_bit(two_workers, given, fp64, nb, no_hang):
    how = {"precision_threshold": 1e-5, "tile_size": nb, "fp64": fp64, "devices": "host:0", "lower": True}
    alone = oc.cholesky(A, half_products=False, **how)
    with alone, oc.cholesky(GIVEN[given](A), client=two_workers, **how) as there:
        assert there.formats == alone.formats and there.arithmetic_key == alone.arithmetic_key
        assert np.array_equal(there.rows(range(N), N), alone.rows(range(N), N))
        report = there.report
        assert report.precision.formats == alone.report.plan.precision.formats and not report.escalations
        assert measured(np.tril(there.rows(range(N), N)), A, 1e-5) <= float(report.certified_bound) <= 1e-5
        assert "formats" in str(report) and report.to_dict()["certified_bound"] == float(report.certified_bound)
        b = np.random.default_rng(0).standard_normal((N, 3))
        assert np.array_equal(there.half_solve(b), alone.half_solve(b))
        assert there.logdet() == alone.logdet()


@pytest.mark.parametrize("name", ["row"])
def test_a_failed_pivot_is_remedied_on_the_workers(two_workers, name, no_hang):
    case = CASES[name]
    a = case.matrix()
    with oc.cholesky(
        oc.from_function(len(a), Entries(a)),
        precision_threshold=case.threshold,
        tile_size=case.nb,
        memory_budget="4 MB",
        devices="host:0",
        client=two_workers,
    ) as there:
        report = there.report
        assert report.escalations
        assert (
            measured(np.tril(there.rows(range(case.n), case.n)), a, case.threshold)
            <= float(report.certified_bound)
            <= case.threshold
        )
        assert report.repeated >= 0


def test_what_is_not_positive_definite_in_fp64_is_refused_with_its_minor(two_workers, no_hang):
    a = A.copy()
    a[100, 100] = -1.0
    with pytest.raises(oc.NotPositiveDefiniteError) as found:
        oc.cholesky(a, precision_threshold=1e-5, tile_size=NB, client=two_workers, lower=True)
    assert found.value.minor == 101


def test_a_group_is_refused_in_mixed_precision(two_workers, tmp_path):
    with pytest.raises(ValueError, match="stays in the workers' memory"):
        oc.cholesky(A, precision_threshold=1e-5, store=tmp_path / "L.zarr", client=two_workers)
