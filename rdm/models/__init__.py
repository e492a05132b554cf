"""Denoisers: networks that guess the clean text. They know tokens, steps and memory, and nothing of diffusion."""
