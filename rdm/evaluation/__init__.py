"""Metrics, the results store and the report. They read what the other packages write."""
