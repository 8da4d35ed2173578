"""Clocks: each times two sides in turn, by one protocol."""
