"""Bounds: what no feasible answer can undercut."""
