"""The cards of this host: which there are, their locks, their telemetry."""
