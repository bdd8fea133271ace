"""Connections of a client: routes, faults, access control."""
