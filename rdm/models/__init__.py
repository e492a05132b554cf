"""Networks and their layers. They read tokens, steps and encoded sources, and do not depend on diffusion."""
