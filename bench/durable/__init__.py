"""Synced answers beside the defaults of other brokers, each with its own load tool."""
