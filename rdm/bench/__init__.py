"""``python -m rdm.bench``: speed of training and decoding relative to the machine's matrix-product rate."""
