"""What the Spark source and sink can be told wrong, and what can go wrong while they work."""

from congreve.errors import CongreveError


class SparkError(CongreveError):
    """Root of this package's errors."""


class OptionError(SparkError):
    """An option is missing or has a value that means nothing."""


class UnreachableError(OptionError):
    """Servers that an option names do not answer, for a while or for good."""


class SchemaError(SparkError):
    """A column that is not there, or is of another type."""


class DataLossError(SparkError):
    """Messages that were to be read are no longer there; failOnDataLoss=false passes over them."""


class DamagedError(SparkError):
    """What lies in a store or came from a broker is no record."""


class QueueGoneError(SparkError):
    """A queue that a stream reads is not there, for a while or for good."""


def lost(part: tuple[object, int, int], low: int, high: int) -> DataLossError:
    """What a range of a queue asks for that has only offsets [low, high)."""
    queue, start, stop = part
    return DataLossError(
        f"{queue}: offsets {start} to {stop} were to be read, there are {low} to {high}; "
        "option failOnDataLoss=false passes over what is gone"
    )


class SendError(SparkError):
    """A row that is no message, or a message that no broker took."""
