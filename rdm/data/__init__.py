"""Text in, batches out: tokenizers, batching and the LightningDataModules."""
