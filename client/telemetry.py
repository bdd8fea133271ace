"""OpenTelemetry's context in message properties; needs the extra ``congreve[opentelemetry]``."""

import msgspec
from opentelemetry import propagate
from opentelemetry.context import Context, attach, detach

from congreve.client.hooks import ConsumeContext, ConsumeHook, SendHook
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


class OpenTelemetryConsumeHook(ConsumeHook):
    """Makes the sender's context the current one while a listener works on its message, so that the
    listener's spans are children of the sender's. A batch has many senders: nothing is done there,
    link to message_context() of each."""

    def before_consume(self, context: ConsumeContext) -> None:
        if len(context.messages) == 1:
            context.notes[self] = attach(message_context(context.messages[0]))

    def after_consume(self, context: ConsumeContext) -> None:
        if self in context.notes:
            detach(context.notes[self])
