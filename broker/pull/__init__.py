"""Pulls: the fast path, long polling, waits for the disk, queries."""
