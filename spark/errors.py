"""What the Spark source and sink can be told wrong, and what can go wrong while they work."""

from congreve.errors import CongreveError


class SparkError(CongreveError):
    """Root of this package's errors."""


class OptionError(SparkError):
    """An option is missing or has a value that means nothing."""


class SchemaError(SparkError):
    """A column that is not there, or is of another type."""


class DataLossError(SparkError):
    """Messages that were to be read are no longer there; failOnDataLoss=false passes over them."""


class SendError(SparkError):
    """A row that is no message, or a message that no broker took."""
