"""Corpora, tokenizers, the codec, batching and the LightningDataModules."""
