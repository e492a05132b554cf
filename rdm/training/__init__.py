"""The LightningModule, optimisers, callbacks and checkpoints."""
