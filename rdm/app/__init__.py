"""What the scripts share; the only layer that knows Hydra."""
