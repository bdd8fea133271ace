"""Figures of a running broker, and the port that shows them."""
