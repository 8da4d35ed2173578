"""Exporters, each of which turns a record into another format; one file each."""
