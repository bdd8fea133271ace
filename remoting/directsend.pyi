"""Bytes straight into a socket in which nothing else waits. For compiled code only."""
