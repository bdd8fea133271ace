"""Requests and responses: codes, typed headers and bodies."""
