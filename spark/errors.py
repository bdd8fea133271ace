"""What the Spark source can be told wrong."""

from congreve.errors import CongreveError


class OptionError(CongreveError):
    """An option is missing or has a value that means nothing."""
