"""The commit log: segments, appends, flush policy, cold reads."""
