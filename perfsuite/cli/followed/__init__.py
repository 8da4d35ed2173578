"""Tests that perfsuite adds to a suite; their separate folder gives them the same names in every project."""
