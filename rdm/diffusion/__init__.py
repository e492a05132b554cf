"""The mathematics of discrete diffusion in plain torch; no Lightning, no Hydra, no tokenizer."""
