"""Networks and their layers; they do not depend on diffusion."""
