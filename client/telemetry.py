"""OpenTelemetry's context in message properties; needs the extra ``congreve[opentelemetry]``."""

import msgspec
from opentelemetry import propagate
from opentelemetry.context import Context

from congreve.client.hooks import SendHook
from congreve.client.message import Message, ReceivedMessage


class OpenTelemetryHook(SendHook):
    """Sends the current context (``traceparent``, ``tracestate``, ``baggage``) with each message.

    Spans are the program's own; the consumer finds the sender's with message_context().
    """

    def prepare(self, message: Message) -> Message:
        carrier = dict(message.properties)
        propagate.inject(carrier)
        if carrier == message.properties:
            return message
        return msgspec.structs.replace(message, properties=carrier)


def message_context(message: ReceivedMessage) -> Context:
    """The context that a message was sent in, as the parent or link of a consumer's span."""
    return propagate.extract(message.properties)
