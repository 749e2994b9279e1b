"""Fits of one data set by this package and by others, each by its own means; what ``geostat_peers.py`` measures.

Every fit takes sites in a box of side 1 and values of mean 0 and deviation 1, so that nobody's starting values suffer from
units, and gives its estimates in our parameters: variance, range ``a`` of ``K(h / a)``, smoothness, nugget as a variance.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ooc_chol.apps import geostat

Array = NDArray[np.float64]
#: Kriging mean and variance of new observations.
Predict = Callable[[Array], tuple[Array, Array]]

#: Larger than any matrix here: GPyTorch then factors instead of iterating.
_ALWAYS_CHOLESKY = 10**9
#: Least error variance that GPyTorch may find with the exact settings: our own floor. Its default is 1e-4.
_NOISE_FLOOR = 1e-8
#: As in GPyTorch's first tutorial.
_ADAM_STEPS, _ADAM_RATE = 50, 0.1
#: Steps of its search by L-BFGS, which ends by its tolerances before.
_LBFGS_STEPS = 200


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit found."""

    estimates: Mapping[str, float]
    predict: Predict
    evaluations: int | None = None  #: Of the likelihood, or iterations, as ``counted`` says
    counted: str = "evaluations"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Peer:
    """A package with its settings."""

    package: str | None
    settings: str
    fit: Callable[[Array, Array, float | None, int], Fitted]
    estimates_smoothness: bool = False

    @property
    def version(self) -> str | None:
        """The version that is installed; None where it is not, or is this package."""
        try:
            return importlib.metadata.version(self.package) if self.package else None
        except importlib.metadata.PackageNotFoundError:
            return None


def _estimates(variance: float, length: float, smoothness: float, nugget: float) -> dict[str, float]:
    """Estimates of packages whose length scale is ``a sqrt(2 nu)``: scikit-learn, GPyTorch, GPBoost."""
    return {"variance": variance, "range": length / math.sqrt(2 * smoothness), "smoothness": smoothness, "nugget": nugget}


def _ours(method: str | None) -> Callable[[Array, Array, float | None, int], Fitted]:
    def fit(sites: Array, values: Array, smoothness: float | None, threads: int) -> Fitted:
        observations = geostat.make_observations(sites, values)
        options: Mapping[str, Any] = {"smoothness": "free" if smoothness is None else smoothness, "method": method}
        result = geostat.fit(observations, **options)

        def predict(new: Array) -> tuple[Array, Array]:
            found = geostat.predict(observations, result.model, new)
            return found.mean, found.variance

        return Fitted(vars(result.model), predict, len(result.evaluations), warnings=result.warnings)

    return fit


def _sklearn(sites: Array, values: Array, smoothness: float | None, threads: int) -> Fitted:
    from scipy.optimize import minimize
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    counts = []

    def lbfgs(objective: Any, start: Array, bounds: Array) -> tuple[Array, float]:
        # what its own optimizer does, and the number of evaluations, which that keeps to itself
        found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds)
        counts.append(found.nfev)
        return found.x, found.fun

    family = ConstantKernel() * Matern(nu=smoothness) + WhiteKernel()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gp = GaussianProcessRegressor(family, alpha=0.0, optimizer=lbfgs, normalize_y=True).fit(sites, values)
    signal, noise = gp.kernel_.k1, gp.kernel_.k2
    scale = float(np.var(values))
    length = signal.k2.length_scale
    found = _estimates(scale * signal.k1.constant_value, length, smoothness, scale * noise.noise_level)

    def predict(new: Array) -> tuple[Array, Array]:
        mean, deviation = gp.predict(new, return_std=True)
        return mean, deviation**2

    return Fitted(found, predict, sum(counts), warnings=tuple(str(w.message).splitlines()[0] for w in told))


def _gpboost(sites: Array, values: Array, smoothness: float | None, threads: int) -> Fitted:
    import gpboost

    family = "matern_estimate_shape" if smoothness is None else "matern"
    shape = {} if smoothness is None else {"cov_fct_shape": smoothness}
    gp = gpboost.GPModel(gp_coords=sites, cov_function=family, gp_approx="none", num_parallel_threads=threads, **shape)
    gp.fit(y=values, X=np.ones((len(values), 1)))
    nugget, variance, length, *rest = (float(v) for v in np.ravel(gp.get_cov_pars(format_pandas=False)))
    nu = rest[0] if smoothness is None else smoothness
    found = _estimates(variance, length, nu, nugget)

    def predict(new: Array) -> tuple[Array, Array]:
        made = gp.predict(gp_coords_pred=new, X_pred=np.ones((len(new), 1)), predict_var=True, predict_response=True)
        return made["mu"], made["var"]

    return Fitted(found, predict, int(gp._get_num_optim_iter()), "iterations")


def _gpytorch(is_exact: bool) -> Callable[[Array, Array, float | None, int], Fitted]:
    def fit(sites: Array, values: Array, smoothness: float | None, threads: int) -> Fitted:
        import gpytorch
        import torch

        torch.set_num_threads(threads)
        torch.manual_seed(0)
        x, y = torch.as_tensor(sites), torch.as_tensor(values)
        constraint = gpytorch.constraints.GreaterThan(_NOISE_FLOOR) if is_exact else None

        class Model(gpytorch.models.ExactGP):
            def __init__(self, likelihood: Any) -> None:
                super().__init__(x, y, likelihood)
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=smoothness))

            def forward(self, at: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(at), self.covar_module(at))

        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=constraint).double()
        gp = Model(likelihood).double()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, gp)
        count = 0

        def settings() -> contextlib.ExitStack:
            stack = contextlib.ExitStack()
            if is_exact:
                stack.enter_context(gpytorch.settings.max_cholesky_size(_ALWAYS_CHOLESKY))
                stack.enter_context(gpytorch.settings.fast_computations(False, False, False))
            return stack

        def loss() -> Any:
            nonlocal count
            count += 1
            search.zero_grad()
            value = -objective(gp(x), y)
            value.backward()
            return value

        gp.train()
        likelihood.train()
        with settings(), warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            if is_exact:
                search = torch.optim.LBFGS(gp.parameters(), max_iter=_LBFGS_STEPS, line_search_fn="strong_wolfe")
                search.step(loss)
            else:
                search = torch.optim.Adam(gp.parameters(), lr=_ADAM_RATE)
                for _ in range(_ADAM_STEPS):
                    search.step(loss)
        gp.eval()
        likelihood.eval()
        signal = gp.covar_module
        numbers = (signal.outputscale, signal.base_kernel.lengthscale, likelihood.noise)
        variance, length, nugget = (float(number.detach()) for number in numbers)
        estimates = _estimates(variance, length, smoothness, nugget)

        def predict(new: Array) -> tuple[Array, Array]:
            with settings(), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = likelihood(gp(torch.as_tensor(new)))
                return found.mean.numpy(), found.variance.numpy()

        return Fitted(estimates, predict, count, warnings=tuple({str(w.message).splitlines()[0] for w in told}))

    return fit


#: By the name in the result file.
PEERS: Mapping[str, Peer] = {
    "ooc_chol": Peer(None, "the default method", _ours(None), True),
    "ooc_chol-lbfgs": Peer(None, 'method="lbfgs"', _ours("lbfgs"), True),
    "GPBoost": Peer("gpboost", 'gp_approx="none", intercept, its default optimizer', _gpboost, True),
    "GPyTorch-exact": Peer(
        "gpytorch", "float64, Cholesky at every order, L-BFGS with strong Wolfe conditions, noise floor 1e-8", _gpytorch(True)
    ),
    "GPyTorch-default": Peer("gpytorch", "float64, its default settings, Adam as in its first tutorial", _gpytorch(False)),
    "scikit-learn": Peer("scikit-learn", "ConstantKernel * Matern + WhiteKernel, normalize_y, L-BFGS-B, one start", _sklearn),
}
