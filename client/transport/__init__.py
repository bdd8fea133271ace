"""Connections of a client: routes, faults."""
