"""Moved to `feasibly.precision`."""

from feasibly.precision import double, in_double, twin

__all__ = ["double", "in_double", "twin"]
