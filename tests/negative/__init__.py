"""Hostile and malformed input, and what the server must make of it."""
