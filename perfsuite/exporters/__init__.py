"""Exporters: what a record can be turned into, one file each."""
