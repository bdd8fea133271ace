"""Stores that tests begin with."""
