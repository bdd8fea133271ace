"""The trace of a message: when it was sent, and by which groups it was consumed."""

from starlette.responses import Response

from congreve.client.errors import RouteNotFoundError
from congreve.client.observability.trace_reader import AFTER, BEFORE, TraceEvent, read_trace
from congreve.console.web.pages import Visit
from congreve.records.message.topics import TRACE_TOPIC

MESSAGES_MAX = 64


async def traces(visit: Visit) -> Response:
    """A form for a message id or key, and the events of its trace in the order of time."""
    wanted, topic = visit.query("id"), visit.query("topic", TRACE_TOPIC)
    events: list[TraceEvent] = []
    said = None
    if wanted and topic != TRACE_TOPIC and not visit.sees_bodies:
        # What looks like a trace is a part of a body.
        said = f"This console shows traces of {TRACE_TOPIC} only to you: others are bodies."
    elif wanted:
        try:
            found = await visit.cluster.lookup.by_key(topic, wanted, count=MESSAGES_MAX)
        except RouteNotFoundError:
            found = []
            said = f"There is no topic {topic}: set traceTopicEnable=true in the brokers."
        for each in found:
            events += [event for event in read_trace(each.record.body) if _is_of(event, wanted)]
        if not events and found:  # a key: all messages of these records have it
            events = [event for each in found for event in read_trace(each.record.body)]
        if not events and said is None:
            said = "No trace was found: clients trace only if they are started with it."
    return visit.page(
        "traces.html",
        id=wanted,
        topic=topic,
        default_topic=TRACE_TOPIC,
        events=_in_order(events),
        said=said,
    )


def _is_of(event: TraceEvent, message_id: str) -> bool:
    return message_id in event.message_id.split(",")


def _in_order(events: list[TraceEvent]) -> list[TraceEvent]:
    """By time; an AFTER of an old client, which has no time, follows its BEFORE."""
    begun = {event.request_id: event for event in events if event.kind == BEFORE}

    def at(event: TraceEvent) -> tuple[int, bool]:
        before = begun.get(event.request_id) if event.kind == AFTER else None
        known = event.at_ms or (before.at_ms + max(event.cost_ms, 0) if before else 0)
        return known, event.kind == AFTER

    return sorted(events, key=at)
