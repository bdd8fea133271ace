"""Sends OpenTelemetry's context in message properties; needs the extra
``congreve[opentelemetry]``."""

import msgspec
from opentelemetry import propagate
from opentelemetry.context import Context, attach, detach

from congreve.client.hooks import ConsumeContext, ConsumeHook, SendHook
from congreve.client.message import Message, ReceivedMessage


class OpenTelemetryHook(SendHook):
    """Sends the current context (``traceparent``, ``tracestate``, ``baggage``) with each message.

    The program creates the spans; the consumer gets the sender's context from message_context().
    """

    def prepare(self, message: Message) -> Message:
        """Add the context to the message's properties."""
        carrier = dict(message.properties)
        propagate.inject(carrier)
        if carrier == message.properties:
            return message
        return msgspec.structs.replace(message, properties=carrier)


def message_context(message: ReceivedMessage) -> Context:
    """The context that a message was sent in, to use as the parent or link of a consumer's span."""
    return propagate.extract(message.properties)


class OpenTelemetryConsumeHook(ConsumeHook):
    """Makes the sender's context current while a listener works on its message, so that the
    listener's spans are children of the sender's.

    A batch has many senders, so no context becomes current for it: a span should link to the
    message_context() of each message. None becomes current in an iteration.
    """

    def before_consume(self, context: ConsumeContext) -> None:
        """Attach the sender's context."""
        if len(context.messages) == 1 and not context.in_iteration:
            context.notes[self] = attach(message_context(context.messages[0]))

    def after_consume(self, context: ConsumeContext) -> None:
        """Detach the sender's context."""
        if self in context.notes:
            detach(context.notes[self])
