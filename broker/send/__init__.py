"""Sends: checks, batches, messages sent back, replies, group commit."""
