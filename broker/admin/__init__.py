"""Requests of administrators."""
