"""Idle clients of gRPC."""
