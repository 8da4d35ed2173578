"""Tests that perfsuite itself adds to a suite; a folder of their own gives them the same names in every project."""
