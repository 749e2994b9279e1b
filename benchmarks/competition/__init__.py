"""The comparison of Heaton et al. (2019): its data, or a simulated twin, and trials on held-out values."""
