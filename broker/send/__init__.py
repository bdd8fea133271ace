"""The rules of sends, batches, messages sent back, and replies."""
