"""What is kept: one JSON line a case."""
