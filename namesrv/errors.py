"""The name server's errors."""

from congreve.base.errors import CongreveError


class ConfigError(CongreveError):
    """A setting of the name server has a value that is not allowed."""


class RegistrationError(CongreveError):
    """A broker registers with a name or address that is too long."""
