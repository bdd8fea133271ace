"""What the name server can fail with."""

from congreve.errors import CongreveError


class ConfigError(CongreveError):
    """A setting of the name server has a value that it cannot have."""
