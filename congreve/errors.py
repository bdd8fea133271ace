"""The root of every error that Congreve raises on purpose."""


class CongreveError(Exception):
    """Says what was wrong, with which value, and what to do about it."""
