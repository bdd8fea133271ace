"""Refusals of calls."""

from congreve.broker.errors import BrokerError
from congreve.broker.grpc.codecs.codes import Code


class CallRefusedError(BrokerError):
    """A call cannot be served: its answer has this code, and the text."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
