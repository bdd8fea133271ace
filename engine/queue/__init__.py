"""Consume queues: entries, files, mappings, checksums."""
