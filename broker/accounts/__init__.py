"""Accounts: who may do what, checked before a request's handler runs."""
