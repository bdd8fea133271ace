"""Hooks, logs, metrics, traces and statistics of a client."""
