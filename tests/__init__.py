"""Tests; also programs that tests run in processes of their own, which therefore start quickly."""

from rdm.training.deferred_torchmetrics import defer_torchmetrics

defer_torchmetrics()
