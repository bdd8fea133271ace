"""Stores that are written as a whole, from records with known queue offsets."""
