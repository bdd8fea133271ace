"""The compiled path of sends and pulls: one pass over a chunk of requests."""
