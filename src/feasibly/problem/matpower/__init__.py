"""MATPOWER case files: a small language, read whole or refused by line."""
