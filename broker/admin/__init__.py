"""Requests of administrators, and statistics."""
