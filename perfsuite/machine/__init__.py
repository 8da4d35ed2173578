"""Describes the machine: health, memory hierarchy, links, measured ceilings."""
