"""Overload, slow clients and shutdown under load."""
