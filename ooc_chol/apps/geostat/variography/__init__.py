"""Semivariograms before any model: pairs of sites, curves by distance and direction, maps of lags, and least squares."""
