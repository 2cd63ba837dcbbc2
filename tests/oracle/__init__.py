"""A real Triton from PyPI, run beside Tessera as the reference."""
