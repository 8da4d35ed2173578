"""Records: one JSON line for each case."""
