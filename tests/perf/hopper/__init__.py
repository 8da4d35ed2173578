"""Gates of shapes that a Hopper card is for."""
