"""Damage in the log: it is found in the background, named, and written over."""
