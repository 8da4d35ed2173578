"""Records by card, and the programs that make them."""
