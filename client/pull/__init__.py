"""Pulls and their messages, one by one or as columns."""
