"""Accounts, their files and permissions, and the gate before the handlers."""
