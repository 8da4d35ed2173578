"""Runs of minutes and more, by `nox -s nightly`; their results are committed in records/nightly."""
