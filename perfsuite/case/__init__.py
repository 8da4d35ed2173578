"""Runs one case, from inputs to verdict."""
