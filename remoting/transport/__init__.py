"""Connections, servers and clients."""
