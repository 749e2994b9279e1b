"""Measurements behind the documents: ``python -m benchmarks CASE`` runs one, ``python -m benchmarks`` lists them."""
