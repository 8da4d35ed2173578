"""Paired statistics, and the decision that they allow."""
