"""Metrics, chosen by ``metrics=``: objects that turn hypotheses into a :class:`~rdm.evaluation.metrics.base.Metric`."""
