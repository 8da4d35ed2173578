"""Why it is slow."""
