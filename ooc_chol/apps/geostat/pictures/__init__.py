"""Pictures of data, models and residuals."""
