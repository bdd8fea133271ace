"""Ours and the reference as processes, and the official clients that talk to both."""
