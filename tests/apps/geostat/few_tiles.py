"""Fits and likelihoods whose matrices have one tile or a few: five times as fast at the small orders of tests.

For tests of statistics, to which tiles do not matter. Tests of commands, of documents and of known errors leave the order of a
tile to the library, which takes 16 or 32 there.
"""

from __future__ import annotations

from functools import partial

from ooc_chol.apps import geostat

FEW_TILES = geostat.FactorSettings(tile_size=128)

fit = partial(geostat.fit, settings=FEW_TILES)
infer = partial(geostat.infer, settings=FEW_TILES)
likelihood_ratios = partial(geostat.likelihood_ratios, settings=FEW_TILES)
log_likelihood = partial(geostat.log_likelihood, settings=FEW_TILES)
log_likelihood_gradient = partial(geostat.log_likelihood_gradient, settings=FEW_TILES)
profile_likelihood = partial(geostat.profile_likelihood, settings=FEW_TILES)
profile_log_likelihood = partial(geostat.profile_log_likelihood, settings=FEW_TILES)
profile_log_likelihood_gradient = partial(geostat.profile_log_likelihood_gradient, settings=FEW_TILES)
