"""Metrics of decoded text, chosen by ``metrics=``; each is a :class:`~rdm.evaluation.metrics.base.Scorer`."""
