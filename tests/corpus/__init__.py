"""Modules in the form of machine-written kernels: one file for each kind, each module with two sizes."""
