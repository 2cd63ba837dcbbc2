"""A real Triton from PyPI as the reference."""
