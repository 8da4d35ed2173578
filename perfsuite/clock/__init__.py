"""How long: two sides timed in turn, by one protocol."""
