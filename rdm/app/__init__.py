"""Code shared by the scripts; the only layer that depends on Hydra."""
