"""One file a family: each defines one subclass of Problem, and is found by its place in this folder."""
