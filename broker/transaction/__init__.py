"""Transactional messages: half messages, their ends, checks and recovery."""
