"""Spans of OpenTelemetry for sends, polls, pulls and work on messages, by its conventions for
messaging; needs the extra ``congreve[opentelemetry]``."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from opentelemetry import propagate, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

from congreve.base.version import __version__
from congreve.client.hooks import (
    ConsumeContext,
    ConsumeHook,
    ConsumeOutcome,
    ReceiveContext,
    SendContext,
    SendHook,
)
from congreve.client.message import Message, ReceivedMessage
from congreve.client.observability.telemetry import message_context
from congreve.records.message.properties import SHARDING_KEY

NAME = "congreve.client"
NS_OF_S = 1_000_000_000

Attributes = dict[str, Any]


class SendSpans(SendHook):
    """Spans of a producer: ``create TOPIC`` for each message, whose context travels in the
    message's properties (``traceparent``, ``tracestate``), and ``send TOPIC`` for each attempt.

    The messages of send_many() share the context of one ``create``; with `each_of_many` each has
    its own, which takes longer. (RocketMQ: none; its Java agent makes such spans.)
    """

    def __init__(
        self, provider: TracerProvider | None = None, *, each_of_many: bool = False
    ) -> None:
        self.each_of_many = each_of_many
        self._tracer = trace.get_tracer(NAME, __version__, provider)

    def prepare(self, message: Message) -> Message:
        """Create a message's span, and add its context to the properties."""
        span = self._tracer.start_span(
            f"create {message.topic}",
            kind=SpanKind.PRODUCER,
            attributes=_of("create", message.topic) | _of_message(message),
        )
        carrier = dict(message.properties)
        propagate.inject(carrier, trace.set_span_in_context(span))
        span.end()
        return msgspec.structs.replace(message, properties=carrier)

    def before_send(self, context: SendContext) -> None:
        """Begin an attempt's span."""
        outgoing = context.outgoing
        host, _, port = context.address.rpartition(":")
        attributes = _of("send", outgoing.topic) | {
            "messaging.destination.partition.id": str(context.queue.queue_id),
            "server.address": host,
            "server.port": int(port),
        }
        if outgoing.is_batch:
            attributes["messaging.batch.message_count"] = outgoing.count
        else:
            attributes["messaging.message.id"] = outgoing.message_id
            attributes["messaging.message.body.size"] = len(outgoing.body)
        context.notes[self] = self._tracer.start_span(
            f"send {outgoing.topic}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=_links([each.properties for each in outgoing.messages]),
        )

    def after_send(self, context: SendContext) -> None:
        """End an attempt's span."""
        span: Span = context.notes.pop(self)
        if context.error is not None:
            _note_error(span, context.error)
        elif context.result is not None:
            span.set_attribute("messaging.rocketmq.send_result", context.result.status.name)
        span.end()


class ConsumeSpans(ConsumeHook):
    """Spans of a consumer: ``process TOPIC`` around each call of a listener, or from a message of
    an iteration to the request for the next one, and ``receive TOPIC`` for each poll or pull that
    returned messages.

    ``process`` is a child of the message's ``create``; a span about several messages is linked to
    all of their senders instead. In an iteration it does not become the current span.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(NAME, __version__, provider)

    def before_consume(self, context: ConsumeContext) -> None:
        """Begin a span, and make that of a listener's call the current one."""
        messages = context.messages
        topic = messages[0].topic
        is_one = len(messages) == 1
        span = self._tracer.start_span(
            f"process {topic}",
            context=message_context(messages[0]) if is_one else None,
            kind=SpanKind.CONSUMER,
            attributes=_of("process", topic) | _of_received(context.group, messages),
            links=[] if is_one else _links([each.properties for each in messages]),
        )
        token = None if context.in_iteration else attach(trace.set_span_in_context(span))
        context.notes[self] = span, token

    def after_consume(self, context: ConsumeContext) -> None:
        """End the span."""
        span, token = context.notes.pop(self)
        if token is not None:
            detach(token)
        if context.error is not None:
            _note_error(span, context.error)
        elif context.outcome in (ConsumeOutcome.FAILED, ConsumeOutcome.TIMEOUT):
            span.set_attribute("error.type", context.outcome.name.lower())
            span.set_status(Status(StatusCode.ERROR, context.outcome.name))
        span.end()

    def after_receive(self, context: ReceiveContext) -> None:
        """Note a poll or a pull as a span."""
        topic = context.messages[0].topic
        began_ns = int(context.began_at * NS_OF_S)
        span = self._tracer.start_span(
            f"receive {topic}",
            kind=SpanKind.CLIENT,
            attributes=_of("receive", topic) | _of_received(context.group, context.messages),
            links=_links([each.properties for each in context.messages]),
            start_time=began_ns,
        )
        span.end(began_ns + int(context.seconds * NS_OF_S))


def _of(operation: str, topic: str) -> Attributes:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _of_message(message: Message) -> Attributes:
    found: Attributes = {"messaging.message.body.size": len(message.body)}
    kind = "normal"
    if message.delay_level:
        found["messaging.rocketmq.message.delay_time_level"] = message.delay_level
        kind = "delay"
    if message.deliver_ms:
        found["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_ms
        kind = "delay"
    if SHARDING_KEY in message.properties:
        kind = "fifo"
    found["messaging.rocketmq.message.type"] = kind
    return found | _named(message.tags, message.keys)


def _of_received(group: str, messages: Sequence[ReceivedMessage]) -> Attributes:
    first = messages[0]
    found: Attributes = {
        "messaging.consumer.group.name": group,
        "messaging.destination.partition.id": str(first.queue_id),
    }
    if len(messages) > 1:
        return found | {"messaging.batch.message_count": len(messages)}
    found["messaging.message.id"] = first.message_id
    found["messaging.message.body.size"] = first.body_size
    return found | _named(first.tags, first.keys)


def _named(tags: str | None, keys: str | None) -> Attributes:
    found: Attributes = {}
    if tags:
        found["messaging.rocketmq.message.tag"] = tags
    if keys:
        found["messaging.rocketmq.message.keys"] = keys.split()
    return found


def _links(properties: Sequence[Mapping[str, str]]) -> list[Link]:
    """Links to the contexts in which messages were sent."""
    contexts = [
        trace.get_current_span(propagate.extract(each)).get_span_context() for each in properties
    ]
    return [Link(context) for context in contexts if context.is_valid]


def _note_error(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))
