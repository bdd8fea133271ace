"""The root of every error that Congreve raises on purpose."""


class CongreveError(Exception):
    """The root of Congreve's errors; the text names the fault, the value and what to do."""
