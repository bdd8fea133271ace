"""Faults that tests inject below a backend."""
