"""Processes of Congreve and the reference, and the official clients that talk to both."""
