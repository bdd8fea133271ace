"""Signatures of requests in compiled code."""
