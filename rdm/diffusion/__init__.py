"""The mathematics of discrete diffusion: plain torch, no Lightning, no Hydra, no tokenizer."""
