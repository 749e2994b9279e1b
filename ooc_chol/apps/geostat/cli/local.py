"""How ``predict`` predicts: from all data with the exact factor, or from neighbourhoods, as asked or as a plan decides."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike, NDArray

import ooc_chol as oc
from ooc_chol.apps.geostat.cli.messages import note, say_data, say_plan
from ooc_chol.apps.geostat.cli.stepwise import Steps
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance, covariance_source
from ooc_chol.apps.geostat.data.dataset import Dataset
from ooc_chol.apps.geostat.data.observations import Observations
from ooc_chol.apps.geostat.factorization import FactorSettings
from ooc_chol.apps.geostat.kriging.local import DEFAULT_NEIGHBOURS, LocalKriging, local_kriging
from ooc_chol.apps.geostat.kriging.local_check import check_local_kriging
from ooc_chol.apps.geostat.kriging.predicted import Prediction, Target
from ooc_chol.apps.geostat.kriging.prediction import kriging, planned_kriging
from ooc_chol.apps.geostat.results import SavedFit

#: Observations up to which a factor is taken to fit, and those up to which it is made even after a fit by approximation.
_SURELY_FITS = 10_000
_EXACT_AFTER_VECCHIA = 20_000


@dataclass(frozen=True, eq=False)
class NewSites:
    """Where predictions are wanted, and of what."""

    sites: NDArray[Any]
    covariates: ArrayLike | None
    target: Target
    error_variances: ArrayLike | None


def add_method(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to predict."""
    parser.add_argument(
        "--method",
        choices=("exact", *DEFAULT_NEIGHBOURS),
        help="exact: with the factor of all data; vecchia: groups of sites share neighbours; nearest: each site from its own "
        "nearest data (default: exact, but vecchia where the factor does not fit in memory, with --neighbours, and for more than "
        f"{_EXACT_AFTER_VECCHIA:,} observations after a fit by vecchia; said before it begins)",
    )
    words = ", ".join(f"{count} with {method}" for method, count in DEFAULT_NEIGHBOURS.items())
    parser.add_argument(
        "--neighbours", type=int, metavar="M", help=f"observations from which each site is predicted (default: {words})"
    )
    parser.add_argument(
        "--certified",
        action="store_true",
        help="add columns with the most that means and standard errors are off from those of exact arithmetic, whatever the "
        "precision of the factor; with the factor of all data",
    )
    parser.add_argument("--no-variance", action="store_true", help="predict means alone, which takes far less time")
    parser.add_argument(
        "--no-check", action="store_true", help="do not compare predictions from neighbours with more exact ones at some sites"
    )


def check_method(options: argparse.Namespace, *, only_exact: bool, needs_variance: bool) -> None:
    """Refuse combinations that have no sense, before any work."""
    if options.method == "exact" and options.neighbours is not None:
        raise ValueError("--method exact predicts from all observations: leave out --neighbours, or take --method vecchia")
    if only_exact and (options.neighbours is not None or options.method not in (None, "exact") or options.no_variance):
        raise ValueError("means over blocks are predicted exactly only: leave out --method, --neighbours and --no-variance")
    if options.certified and (only_exact or options.neighbours is not None or options.method not in (None, "exact")):
        raise ValueError(
            "only predictions at sites from all data are certified: leave out --certified, or --block, --component, --neighbours "
            "and --method"
        )
    if needs_variance and options.no_variance:
        raise ValueError(
            "quantiles, probabilities and the original scale of transformed values need variances: leave out --no-variance"
        )


def predicted_as_asked(
    dataset: Dataset, saved: SavedFit, new: NewSites, settings: FactorSettings, options: argparse.Namespace
) -> tuple[Prediction, dict[str, Any]]:
    """Say what will be done and predict; the prediction, and what to answer of how it was made."""
    method, reason = _method(options, dataset.observations, saved, settings)
    if method == "exact":
        planned = settings_said(dataset, saved.model, len(new.sites), settings, in_full=options.verbose)
        with kriging(dataset.observations, saved.model, settings=planned) as kriged:
            prediction = kriged.predict(
                new.sites,
                covariates=new.covariates,
                target=new.target,
                error_variances=new.error_variances,
                variance=not options.no_variance,
                certified=options.certified,
            )
        if prediction.half_width is not None:
            print(prediction.half_width)
        return prediction, {"method": method, "neighbours": None, "check": None}
    say_data(dataset)
    if reason is not None:
        note(reason)
    found = local_kriging(
        dataset.observations, saved.model, method=method, neighbours=options.neighbours, device=_device(settings.here["devices"])
    )
    print(found.plan(len(new.sites)), flush=True)
    prediction = _from_neighbours(found, new, options)
    check = None
    if not options.no_check:
        check = check_local_kriging(found, new.sites, covariates=new.covariates, target=new.target, settings=settings)
        print(check)
    return prediction, {
        "method": method,
        "neighbours": found.neighbours,
        "check": None if check is None else check.to_dict(),
    }


def settings_said(
    dataset: Dataset, model: AbstractCovariance, sites: int, settings: FactorSettings, *, in_full: bool
) -> FactorSettings:
    """Print what was read and the plan of predictions from all data; the settings with that plan."""
    say_data(dataset)
    plan = planned_kriging(dataset.observations, model, sites, None, settings)
    say_plan(plan, in_full=in_full)
    return settings.planned_by(plan)


def _from_neighbours(found: LocalKriging, new: NewSites, options: argparse.Namespace) -> Prediction:
    """Predict with a word of progress."""
    steps = Steps(len(new.sites), "predicted sites", quiet=options.quiet)
    try:
        return found.predict(
            new.sites,
            covariates=new.covariates,
            target=new.target,
            error_variances=new.error_variances,
            variance=not options.no_variance,
            progress=lambda done, total, seconds: steps.done(done),
        )
    finally:
        steps.close()


def _method(
    options: argparse.Namespace, observations: Observations, saved: SavedFit, settings: FactorSettings
) -> tuple[Any, str | None]:
    """How to predict, and why so where nobody asked for it."""
    if options.method is not None or options.certified:
        return options.method or "exact", None
    if options.neighbours is not None:
        return "vecchia", None
    n = observations.n
    if saved.by_vecchia and n > _EXACT_AFTER_VECCHIA:
        return "vecchia", "the model was fitted by vecchia, so sites are predicted from neighbours; --method exact takes all data"
    if n <= _SURELY_FITS or settings.store is not None or settings.client is not None:
        return "exact", None
    shortage = _shortage(observations, saved.model, settings)
    return ("exact", None) if shortage is None else ("vecchia", shortage)


def _shortage(observations: Observations, model: AbstractCovariance, settings: FactorSettings) -> str | None:
    """Why the exact factor does not fit in host memory; None where it does."""
    free = next(device.free_bytes for device in oc.devices().devices if device.name.startswith("host"))
    needed = stored = 4 * observations.n * (observations.n + 1)
    if settings.precision_threshold is not None or stored <= free:
        plan = settings.plan(covariance_source(model, observations.coordinates))
        on_host = any(name.startswith("host") for name in plan.devices)
        stored, needed = plan.stored_bytes, plan.stored_bytes + (plan.peak_bytes if on_host else 0)
    if needed <= free:
        return None
    return (
        f"the exact factor takes {stored / 1e9:.3g} GB and {free / 1e9:.3g} GB are free, so sites are predicted from "
        "neighbours; --store FILE keeps the factor in a file for --method exact"
    )


def _device(devices: str | int | Sequence[str] | None) -> str | None:
    """The GPU that was named, if one was; matrices of neighbourhoods are factored on the host otherwise."""
    names = [devices] if isinstance(devices, str) else [] if devices is None or isinstance(devices, int) else list(devices)
    return next((name for name in names if name.startswith("cuda")), None)
