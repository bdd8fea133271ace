"""Reads the records of message traces that Java and Python clients send (RocketMQ:
TraceDataEncoder)."""

from collections.abc import Iterator

import msgspec

from congreve.client.observability.trace import FIELD_SEPARATOR, RECORD_SEPARATOR

SENT, BEFORE, AFTER, ENDED = "Pub", "SubBefore", "SubAfter", "EndTransaction"
RECORDS_MAX = 100_000
"""Maximum number of records that are read from one body."""


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a trace (RocketMQ: TraceContext, TraceBean).

    `kind` is SENT, BEFORE or AFTER a listener's call, or ENDED, the end of a transaction. `at_ms`
    is 0 where an old client did not write it, `cost_ms` -1 where the kind has none. `request_id`
    pairs BEFORE with AFTER. `is_success` is None where the kind has none.
    """

    kind: str
    at_ms: int
    group: str
    message_id: str
    topic: str = ""
    host: str = ""
    cost_ms: int = -1
    request_id: str = ""
    is_success: bool | None = None
    state: str = ""
    retries: int = 0


def read_trace(body: bytes) -> list[TraceEvent]:
    """The events of the body of one trace message; records that cannot be read are left out."""
    texts = body.decode("utf-8", "replace").split(RECORD_SEPARATOR)[:RECORDS_MAX]
    return list(_events(texts))


def _events(texts: list[str]) -> Iterator[TraceEvent]:
    for text in texts:
        fields = text.split(FIELD_SEPARATOR)
        try:
            event = _READERS[fields[0]](fields)
        except (KeyError, IndexError, ValueError):
            continue
        yield event


def _sent(fields: list[str]) -> TraceEvent:
    return TraceEvent(
        kind=SENT,
        at_ms=int(fields[1]),
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        host=fields[8],
        cost_ms=int(fields[10]),
        # Clients before 4.4 do not write the offset id.
        is_success=fields[13 if len(fields) > 13 else 12] == "true",
    )


def _before(fields: list[str]) -> TraceEvent:
    return TraceEvent(
        kind=BEFORE,
        at_ms=int(fields[1]),
        group=fields[3],
        request_id=fields[4],
        message_id=fields[5],
        retries=int(fields[6]),
    )


def _after(fields: list[str]) -> TraceEvent:
    return TraceEvent(
        kind=AFTER,
        request_id=fields[1],
        message_id=fields[2],
        cost_ms=int(fields[3]),
        is_success=fields[4] == "true",
        at_ms=int(fields[7]) if len(fields) > 7 else 0,
        group=fields[8] if len(fields) > 8 else "",
    )


def _ended(fields: list[str]) -> TraceEvent:
    return TraceEvent(
        kind=ENDED,
        at_ms=int(fields[1]),
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        host=fields[8],
        state=fields[11],
    )


_READERS = {SENT: _sent, BEFORE: _before, AFTER: _after, ENDED: _ended}
