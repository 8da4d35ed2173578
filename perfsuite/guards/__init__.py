"""Detects tampering: replaced functions, changed surroundings, stale memory, borrowed kernels."""
