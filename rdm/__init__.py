"""Reparameterized discrete diffusion models for text generation."""

__version__ = "0.1.0"
