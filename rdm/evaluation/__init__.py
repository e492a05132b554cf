"""Metrics, likelihood, the results store and the report."""
