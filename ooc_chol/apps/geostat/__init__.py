"""Geostatistics by exact maximum likelihood and kriging, on covariance matrices that need not fit in the memory of the device.

>>> import numpy as np
>>> from ooc_chol.apps import geostat
>>> sites = np.random.default_rng(0).uniform(size=(60, 2))
>>> observations = geostat.make_observations(
...     sites, np.sin(5 * sites[:, 0]) + sites[:, 1]
... )
>>> result = geostat.fit(observations, smoothness=2.5)
>>> prediction = geostat.predict(
...     observations, result.model, [[0.5, 0.5]], target="field"
... )
>>> bool(abs(prediction.mean[0] - np.sin(2.5) - 0.5) < 0.01)
True
"""

from typing import TYPE_CHECKING

from ooc_chol.apps.geostat.convert import Conversion as Conversion
from ooc_chol.apps.geostat.convert import convert_parameters as convert_parameters
from ooc_chol.apps.geostat.covariances.bivariate import BivariateMatern as BivariateMatern
from ooc_chol.apps.geostat.covariances.covariance import SMOOTHNESS as SMOOTHNESS
from ooc_chol.apps.geostat.covariances.covariance import AbstractCovariance as AbstractCovariance
from ooc_chol.apps.geostat.covariances.covariance import Matern as Matern
from ooc_chol.apps.geostat.covariances.covariance import covariance_source as covariance_source
from ooc_chol.apps.geostat.covariances.covariance import covariance_tiles as covariance_tiles
from ooc_chol.apps.geostat.covariances.covariance import cross_covariance as cross_covariance
from ooc_chol.apps.geostat.covariances.covariance import derivative_tiles as derivative_tiles
from ooc_chol.apps.geostat.covariances.geometry import AxisRanges as AxisRanges
from ooc_chol.apps.geostat.covariances.geometry import GeometricAnisotropy as GeometricAnisotropy
from ooc_chol.apps.geostat.covariances.geometry import GreatCircle as GreatCircle
from ooc_chol.apps.geostat.covariances.model_content import model_content as model_content
from ooc_chol.apps.geostat.covariances.model_content import model_from_content as model_from_content
from ooc_chol.apps.geostat.covariances.nested import Nested as Nested
from ooc_chol.apps.geostat.covariances.nonstationary import NonstationaryMatern as NonstationaryMatern
from ooc_chol.apps.geostat.covariances.planar import directional_covariance as directional_covariance
from ooc_chol.apps.geostat.covariances.planar import directional_range as directional_range
from ooc_chol.apps.geostat.covariances.power_exponential import PowerExponential as PowerExponential
from ooc_chol.apps.geostat.covariances.scales import Scale as Scale
from ooc_chol.apps.geostat.covariances.spacetime import GneitingMatern as GneitingMatern
from ooc_chol.apps.geostat.covariances.spacetime import SeparableSpaceTime as SeparableSpaceTime
from ooc_chol.apps.geostat.data.areas import Area as Area
from ooc_chol.apps.geostat.data.areas import area_of_raster as area_of_raster
from ooc_chol.apps.geostat.data.areas import area_sites as area_sites
from ooc_chol.apps.geostat.data.areas import grid_of_cells as grid_of_cells
from ooc_chol.apps.geostat.data.areas import masked as masked
from ooc_chol.apps.geostat.data.dataset import Dataset as Dataset
from ooc_chol.apps.geostat.data.dataset import DataSpec as DataSpec
from ooc_chol.apps.geostat.data.dataset import load_dataset as load_dataset
from ooc_chol.apps.geostat.data.dataset import regular_grid as regular_grid
from ooc_chol.apps.geostat.data.formula import Basis as Basis
from ooc_chol.apps.geostat.data.formula import Formula as Formula
from ooc_chol.apps.geostat.data.formula import parse_formula as parse_formula
from ooc_chol.apps.geostat.data.grids import Grid as Grid
from ooc_chol.apps.geostat.data.grids import grid_over as grid_over
from ooc_chol.apps.geostat.data.io import read_table as read_table
from ooc_chol.apps.geostat.data.layers import Column as Column
from ooc_chol.apps.geostat.data.layers import Layer as Layer
from ooc_chol.apps.geostat.data.layers import write_layer as write_layer
from ooc_chol.apps.geostat.data.observations import Observations as Observations
from ooc_chol.apps.geostat.data.observations import make_observations as make_observations
from ooc_chol.apps.geostat.data.ordering import inverse_permutation as inverse_permutation
from ooc_chol.apps.geostat.data.ordering import morton_order as morton_order
from ooc_chol.apps.geostat.data.rasters import Raster as Raster
from ooc_chol.apps.geostat.data.rasters import read_raster as read_raster
from ooc_chol.apps.geostat.data.sphere import chordal_coordinates as chordal_coordinates
from ooc_chol.apps.geostat.data.tables import load_table as load_table
from ooc_chol.apps.geostat.data.terrain import Terrain as Terrain
from ooc_chol.apps.geostat.data.terrain import jacksboro as jacksboro
from ooc_chol.apps.geostat.data.transforms import Transform as Transform
from ooc_chol.apps.geostat.data.transforms import TransformError as TransformError
from ooc_chol.apps.geostat.data.transforms import box_cox as box_cox
from ooc_chol.apps.geostat.errors import MissingExtraError as MissingExtraError
from ooc_chol.apps.geostat.errors import NeighbourhoodError as NeighbourhoodError
from ooc_chol.apps.geostat.errors import SingularCovarianceError as SingularCovarianceError
from ooc_chol.apps.geostat.errors import UnknownLevelError as UnknownLevelError
from ooc_chol.apps.geostat.estimation.box_cox import BoxCoxFit as BoxCoxFit
from ooc_chol.apps.geostat.estimation.box_cox import fit_box_cox as fit_box_cox
from ooc_chol.apps.geostat.estimation.fit_plan import FitPlan as FitPlan
from ooc_chol.apps.geostat.estimation.fit_plan import FitReport as FitReport
from ooc_chol.apps.geostat.estimation.fitting import FitResult as FitResult
from ooc_chol.apps.geostat.estimation.fitting import SmoothnessTrial as SmoothnessTrial
from ooc_chol.apps.geostat.estimation.fitting import fit as fit
from ooc_chol.apps.geostat.estimation.fitting import plan_fit as plan_fit
from ooc_chol.apps.geostat.estimation.gradient import LikelihoodGradient as LikelihoodGradient
from ooc_chol.apps.geostat.estimation.gradient import log_likelihood_gradient as log_likelihood_gradient
from ooc_chol.apps.geostat.estimation.gradient import profile_log_likelihood_gradient as profile_log_likelihood_gradient
from ooc_chol.apps.geostat.estimation.inference import Estimated as Estimated
from ooc_chol.apps.geostat.estimation.inference import Inference as Inference
from ooc_chol.apps.geostat.estimation.inference import infer as infer
from ooc_chol.apps.geostat.estimation.inference import microergodic as microergodic
from ooc_chol.apps.geostat.estimation.likelihood import Likelihood as Likelihood
from ooc_chol.apps.geostat.estimation.likelihood import log_likelihood as log_likelihood
from ooc_chol.apps.geostat.estimation.likelihood import profile_log_likelihood as profile_log_likelihood
from ooc_chol.apps.geostat.estimation.precision import PrecisionCheck as PrecisionCheck
from ooc_chol.apps.geostat.estimation.profiles import LikelihoodRatio as LikelihoodRatio
from ooc_chol.apps.geostat.estimation.profiles import ProfileLikelihood as ProfileLikelihood
from ooc_chol.apps.geostat.estimation.profiles import likelihood_ratios as likelihood_ratios
from ooc_chol.apps.geostat.estimation.profiles import profile_likelihood as profile_likelihood
from ooc_chol.apps.geostat.estimation.progress import AbstractFitProgress as AbstractFitProgress
from ooc_chol.apps.geostat.estimation.progress import Evaluation as Evaluation
from ooc_chol.apps.geostat.estimation.smoothness_comparison import SmoothnessComparison as SmoothnessComparison
from ooc_chol.apps.geostat.estimation.stationarity import StationarityTest as StationarityTest
from ooc_chol.apps.geostat.estimation.templates import starting_model as starting_model
from ooc_chol.apps.geostat.estimation.vecchia import vecchia_log_likelihood as vecchia_log_likelihood
from ooc_chol.apps.geostat.estimation.vecchia_check import VecchiaCheck as VecchiaCheck
from ooc_chol.apps.geostat.estimation.vecchia_start import VecchiaStart as VecchiaStart
from ooc_chol.apps.geostat.factorization import FactorSettings as FactorSettings
from ooc_chol.apps.geostat.kept_factor import KeptFactor as KeptFactor
from ooc_chol.apps.geostat.kriging.block_means import Blocks as Blocks
from ooc_chol.apps.geostat.kriging.block_means import polygon_blocks as polygon_blocks
from ooc_chol.apps.geostat.kriging.block_means import predict_block_means as predict_block_means
from ooc_chol.apps.geostat.kriging.block_means import rectangular_blocks as rectangular_blocks
from ooc_chol.apps.geostat.kriging.checks import HeldOutScores as HeldOutScores
from ooc_chol.apps.geostat.kriging.checks import coverage as coverage
from ooc_chol.apps.geostat.kriging.checks import gaussian_crps as gaussian_crps
from ooc_chol.apps.geostat.kriging.checks import gaussian_log_score as gaussian_log_score
from ooc_chol.apps.geostat.kriging.checks import interval_score as interval_score
from ooc_chol.apps.geostat.kriging.checks import score as score
from ooc_chol.apps.geostat.kriging.circulant import EmbeddingError as EmbeddingError
from ooc_chol.apps.geostat.kriging.comparison import Comparison as Comparison
from ooc_chol.apps.geostat.kriging.comparison import ScoreDifference as ScoreDifference
from ooc_chol.apps.geostat.kriging.comparison import compare as compare
from ooc_chol.apps.geostat.kriging.efficiency import Efficiency as Efficiency
from ooc_chol.apps.geostat.kriging.efficiency import prediction_efficiency as prediction_efficiency
from ooc_chol.apps.geostat.kriging.factorial import predict_component as predict_component
from ooc_chol.apps.geostat.kriging.folds import Folds as Folds
from ooc_chol.apps.geostat.kriging.folds import fold_labels as fold_labels
from ooc_chol.apps.geostat.kriging.folds import folds as folds
from ooc_chol.apps.geostat.kriging.grid_simulation import simulate_grid as simulate_grid
from ooc_chol.apps.geostat.kriging.grid_simulation import simulate_grid_conditional as simulate_grid_conditional
from ooc_chol.apps.geostat.kriging.grids import write_grid_prediction as write_grid_prediction
from ooc_chol.apps.geostat.kriging.local import LocalKriging as LocalKriging
from ooc_chol.apps.geostat.kriging.local import local_kriging as local_kriging
from ooc_chol.apps.geostat.kriging.local_check import LocalCheck as LocalCheck
from ooc_chol.apps.geostat.kriging.local_check import check_local_kriging as check_local_kriging
from ooc_chol.apps.geostat.kriging.local_plan import LocalPlan as LocalPlan
from ooc_chol.apps.geostat.kriging.local_validation import cross_validate_locally as cross_validate_locally
from ooc_chol.apps.geostat.kriging.outputs import Predicted as Predicted
from ooc_chol.apps.geostat.kriging.outputs import to_geodataframe as to_geodataframe
from ooc_chol.apps.geostat.kriging.outputs import to_xarray as to_xarray
from ooc_chol.apps.geostat.kriging.outputs import write_predictions as write_predictions
from ooc_chol.apps.geostat.kriging.predict_plan import PredictPlan as PredictPlan
from ooc_chol.apps.geostat.kriging.predict_plan import PredictReport as PredictReport
from ooc_chol.apps.geostat.kriging.prediction import HalfWidths as HalfWidths
from ooc_chol.apps.geostat.kriging.prediction import Kriging as Kriging
from ooc_chol.apps.geostat.kriging.prediction import Prediction as Prediction
from ooc_chol.apps.geostat.kriging.prediction import kriging as kriging
from ooc_chol.apps.geostat.kriging.prediction import plan_predict as plan_predict
from ooc_chol.apps.geostat.kriging.prediction import predict as predict
from ooc_chol.apps.geostat.kriging.residuals import standardised_residuals as standardised_residuals
from ooc_chol.apps.geostat.kriging.simulation import simulate as simulate
from ooc_chol.apps.geostat.kriging.simulation import simulate_conditional as simulate_conditional
from ooc_chol.apps.geostat.kriging.transformed import BackTransformed as BackTransformed
from ooc_chol.apps.geostat.kriging.transformed import back_transform as back_transform
from ooc_chol.apps.geostat.kriging.validation import CrossValidation as CrossValidation
from ooc_chol.apps.geostat.kriging.validation import cross_validate as cross_validate
from ooc_chol.apps.geostat.kriging.validation import leave_one_out as leave_one_out
from ooc_chol.apps.geostat.pictures.anisotropy import anisotropy_figure as anisotropy_figure
from ooc_chol.apps.geostat.pictures.anisotropy import variograms_along_axes as variograms_along_axes
from ooc_chol.apps.geostat.pictures.labels import FigureWords as FigureWords
from ooc_chol.apps.geostat.pictures.plots import MapData as MapData
from ooc_chol.apps.geostat.pictures.plots import MapLabels as MapLabels
from ooc_chol.apps.geostat.pictures.plots import maps_figure as maps_figure
from ooc_chol.apps.geostat.pictures.plots import save_figure as save_figure
from ooc_chol.apps.geostat.pictures.plots_checks import profile_figure as profile_figure
from ooc_chol.apps.geostat.pictures.plots_checks import residuals_figure as residuals_figure
from ooc_chol.apps.geostat.pictures.plots_checks import variogram_figure as variogram_figure
from ooc_chol.apps.geostat.pictures.variogram import Envelope as Envelope
from ooc_chol.apps.geostat.pictures.variogram import model_variogram as model_variogram
from ooc_chol.apps.geostat.pictures.variogram import variogram_envelope as variogram_envelope
from ooc_chol.apps.geostat.pictures.variogram_pictures import directions_figure as directions_figure
from ooc_chol.apps.geostat.pictures.variogram_pictures import variogram_map_figure as variogram_map_figure
from ooc_chol.apps.geostat.variography.empirical import Variogram as Variogram
from ooc_chol.apps.geostat.variography.empirical import directional_variograms as directional_variograms
from ooc_chol.apps.geostat.variography.empirical import empirical_variogram as empirical_variogram
from ooc_chol.apps.geostat.variography.least_squares import FittedVariogram as FittedVariogram
from ooc_chol.apps.geostat.variography.least_squares import fit_variogram as fit_variogram
from ooc_chol.apps.geostat.variography.maps import VariogramMap as VariogramMap
from ooc_chol.apps.geostat.variography.maps import variogram_map as variogram_map
from ooc_chol.apps.geostat.variography.pairs import Direction as Direction

if TYPE_CHECKING:
    from ooc_chol.apps.geostat.estimator import MaternGP as MaternGP
else:

    def __getattr__(name: str) -> type:
        """``MaternGP`` when it is first asked for: the rest needs no scikit-learn, which takes half a second to import."""
        if name != "MaternGP":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ooc_chol.apps.geostat.estimator import MaternGP

        return MaternGP

    def __dir__() -> list[str]:
        return sorted({*globals(), "MaternGP"})
