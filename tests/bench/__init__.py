"""Benchmarks: measurements, not tests."""
