"""Other packages' parameters: each by the formula that the package documents, scikit-learn by running its line."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.special import gamma, kv
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel
from sklearn.gaussian_process.kernels import Matern as PeerMatern

from ooc_chol.apps import geostat
from ooc_chol.apps.geostat import DataSpec, Matern, convert_parameters
from tests.apps.geostat.geostat_tolerances import CLOSED_FORM, OTHER_PACKAGE
from tests.inside.cli import main
from tests.inside.geostat import PACKAGES, io, results

pytestmark = [pytest.mark.commit, pytest.mark.host]

DISTANCES = np.geomspace(1e-3, 5.0, 40)


def bessel(r, nu):
    """``2**(1 - nu) / gamma(nu) * r**nu * K_nu(r)``, which all of these packages scale in their own way."""
    return 2 ** (1 - nu) / gamma(nu) * r**nu * kv(nu, r)


#: The covariance of a smooth field and the nugget, from the documentation of each package.
DOCUMENTED = {
    "sklearn": lambda h, p: (p["constant_value"] * bessel(np.sqrt(2 * p["nu"]) * h / p["length_scale"], p["nu"]), p["alpha"]),
    "gstools": lambda h, p: (p["var"] * bessel(np.sqrt(p["nu"]) * h / p["len_scale"], p["nu"]), p["nugget"]),
    "geoR": lambda h, p: (p["sigmasq"] * bessel(h / p["phi"], p["kappa"]), p["tausq"]),
    "gpgp": lambda h, p: (p["variance"] * bessel(h / p["range"], p["smoothness"]), p["variance"] * p["nugget"]),
    "gstat": lambda h, p: (p["psill"] * bessel(h / p["range"], p["kappa"]), p["nugget"]),
    "fields": lambda h, p: (p["sigma2"] * bessel(h / p["aRange"], p["smoothness"]), p["tau"] ** 2),
}


@pytest.mark.parametrize("nu", geostat.SMOOTHNESS)
@pytest.mark.parametrize("package", PACKAGES)
def test_parameters_give_the_same_covariance_by_the_package_s_formula(package, nu):
    model = Matern(1.7, 0.4, nu, 0.03)
    field, nugget = DOCUMENTED[package](DISTANCES, convert_parameters(model, package).parameters)
    np.testing.assert_allclose(field, model.covariance(DISTANCES), rtol=10 * CLOSED_FORM)
    assert nugget == pytest.approx(model.nugget, rel=CLOSED_FORM)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_line_holds_the_numbers_to_the_bit(package):
    model = Matern(1 / 3, 0.1 + 0.2, 1.5, 0.0625)
    conversion = convert_parameters(model, package, dimensions=3)
    numbers = {float(text) for text in re.findall(r"\d+\.\d+(?:e-?\d+)?", conversion.code)}
    named = set(conversion.parameters.values())
    # fields' tau is a standard deviation, but its line takes the variance
    assert numbers == (named - {0.25} | {0.0625} if package == "fields" else named)
    assert ("dim=3" in conversion.code) == (package == "gstools")


def test_the_line_of_scikit_learn_runs_and_agrees():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(50, 2)), rng.normal(size=50)
    model = Matern(1.7, 0.4, 2.5, 0.03)
    names = {"GaussianProcessRegressor": GaussianProcessRegressor, "ConstantKernel": ConstantKernel, "Matern": PeerMatern}
    theirs = eval(convert_parameters(model, "sklearn").code, names).fit(X, y)
    observations = geostat.make_observations(X, y, mean="zero")
    ours = geostat.log_likelihood(observations, model).loglik
    assert theirs.log_marginal_likelihood_value_ == pytest.approx(ours, rel=OTHER_PACKAGE)
    mean, std = theirs.predict(X + 0.1, return_std=True)
    expected = geostat.predict(observations, model, X + 0.1, target="field")
    np.testing.assert_allclose(mean, expected.mean, rtol=OTHER_PACKAGE, atol=OTHER_PACKAGE)
    np.testing.assert_allclose(std, expected.standard_error, rtol=OTHER_PACKAGE)


def test_other_packages_are_named():
    with pytest.raises(ValueError, match=r"no conversion to 'spBayes'; there are sklearn, gstools, geoR, gpgp, fields, gstat"):
        convert_parameters(Matern(1.0, 1.0, 0.5), "spBayes")


def test_the_command_prints_one_or_all(tmp_path, capsys, one_blas_thread):
    sites, heights = geostat.jacksboro().sample(60)
    result = geostat.fit(geostat.make_observations(sites, heights), smoothness=0.5)
    path = tmp_path / "model.json"
    io.write_json(path, results.result_content(DataSpec("csv", "a.csv", ("lon", "lat"), "v", lonlat=True), result))
    assert main(["geostat", "convert", str(path), "--convert-to", "gstools"]) == 0
    assert capsys.readouterr().out == f"{convert_parameters(result.model, 'gstools', dimensions=3)}\n"
    assert main(["geostat", "convert", str(path)]) == 0
    told = capsys.readouterr().out
    assert all(convert_parameters(result.model, package, dimensions=3).code in told for package in PACKAGES)
