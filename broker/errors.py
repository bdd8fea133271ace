"""What the broker can fail with."""

from congreve.errors import CongreveError


class BrokerError(CongreveError):
    """Root of the broker's errors."""


class ConfigError(BrokerError):
    """A configuration file or value cannot be used; names the key, the value and the line."""


class RefusedError(BrokerError):
    """A request that gets an error code: `code` and the text as remark of the answer."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
