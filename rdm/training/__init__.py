"""The LightningModule, its optimiser and the callbacks around it."""
