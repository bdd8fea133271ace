"""Accounts and their permissions, checked before a request's handler runs."""
