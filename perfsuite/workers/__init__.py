"""Processes that work for another one: on this machine, or one a card in a Ray cluster."""
