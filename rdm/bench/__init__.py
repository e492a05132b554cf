"""``python -m rdm.bench``: how fast training and decoding are, in units of this machine's own matrix product."""
