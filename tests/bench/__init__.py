"""Benchmarks: Tessera beside a real Triton, in one run on one machine. Measurements, not tests."""
