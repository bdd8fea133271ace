"""Exceptions of the Spark source and sink."""

from congreve.base.errors import CongreveError


class SparkError(CongreveError):
    """Root of this package's exceptions."""


class OptionError(SparkError):
    """An option is missing or has an invalid value."""


class UnreachableError(OptionError):
    """Servers that an option names do not answer; retrying may help."""


class SchemaError(SparkError):
    """A column is unknown or has the wrong type."""


class DataLossError(SparkError):
    """Messages to be read have been deleted; failOnDataLoss=false skips them."""


class DamagedError(SparkError):
    """A store or a broker returned bytes that are not a record."""


class QueueGoneError(SparkError):
    """A queue of a stream does not exist, perhaps only until its broker is back."""


def lost(part: tuple[object, int, int], low: int, high: int) -> DataLossError:
    """The error of a range that a queue with offsets [low, high) does not hold."""
    queue, start, stop = part
    return DataLossError(
        f"{queue}: offsets {start} to {stop} were to be read, the queue holds {low} to {high}; "
        "option failOnDataLoss=false skips the missing messages"
    )


class SendError(SparkError):
    """A row is not a valid message, or no broker accepted the message."""
