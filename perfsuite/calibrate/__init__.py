"""Measures how often the gate errs on this card."""
