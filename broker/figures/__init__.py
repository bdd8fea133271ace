"""Figures that all paths count: metrics and requests of administrators show them."""
