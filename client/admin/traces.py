"""Message traces that clients have sent (RocketMQ: MQAdminImpl, TraceDataEncoder, TraceView)."""

from collections.abc import Iterator, Sequence

import msgspec

from congreve.base.fields import Fields
from congreve.client.admin.brokers import Brokers
from congreve.client.message import MessageQueue
from congreve.client.observability.trace import FIELD_SEPARATOR, RECORD_SEPARATOR
from congreve.client.received import PulledRecords
from congreve.records.message.topics import TRACE_TOPIC
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.headers import QueryMessageRequestHeader

RECORDS_MAX = 64
FOREVER_MS = (1 << 63) - 1
_NONE = ("", "null")


class TraceEvent(Fields, msgspec.Struct, frozen=True, kw_only=True, order=True):
    """What a client did with a message (RocketMQ: TraceContext, TraceView).

    `kind` is "send", "consume" or "end of transaction". A `consume` without an end in the trace has
    `is_success` None. `state` is the one of a transaction.
    """

    time_ms: int
    kind: str
    group: str
    message_id: str
    topic: str = ""
    tags: str = ""
    keys: str = ""
    broker: str = ""
    cost_ms: int = 0
    retries: int = 0
    is_success: bool | None = None
    state: str = ""


class TraceAdmin:
    """Message traces: ``admin.traces`` of an AdminClient.

    Errors are those of AdminClient. (RocketMQ: QueryMsgTraceByIdSubCommand.)
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def of_message(self, message_id: str, *, topic: str = TRACE_TOPIC) -> list[TraceEvent]:
        """The events of the message with that id, or of those with that key, by time.

        A trace arrives a moment after the event. Brokers give at most 64 records each.
        """
        header = QueryMessageRequestHeader(
            topic=topic,
            key=message_id,
            max_num=RECORDS_MAX,
            begin_timestamp=0,
            end_timestamp=FOREVER_MS,
        )
        answers = await self._brokers.ask_masters(
            RequestCode.QUERY_MESSAGE, header.fields(), accept=(ResponseCode.QUERY_NOT_FOUND,)
        )
        lines: list[list[str]] = []
        for name, answer in answers.items():
            queue = MessageQueue(topic=topic, broker_name=name, queue_id=0)
            for message in PulledRecords(answer.body).messages(queue):
                lines += _lines(message.body.decode(errors="replace"))
        return [event for event in events(lines) if message_id in _names(event)]


def _lines(body: str) -> list[list[str]]:
    return [
        record.split(FIELD_SEPARATOR) for record in body.split(RECORD_SEPARATOR) if record.strip()
    ]


def events(lines: Sequence[Sequence[str]]) -> list[TraceEvent]:
    """The events of trace records, given as their fields, by time; other records are left out.

    A consumer writes one record before its listener and one after it, with the same request id.
    """
    ends = {(line[1], line[2]): line for line in lines if line[0] == "SubAfter" and len(line) > 5}
    found: set[TraceEvent] = set()
    for line in lines:
        try:
            found.update(_event(line, ends))
        except (IndexError, ValueError):
            continue  # of a client that writes another format
    return sorted(found, key=lambda event: event.time_ms)


def _event(line: Sequence[str], ends: dict[tuple[str, str], Sequence[str]]) -> Iterator[TraceEvent]:
    if line[0] == "Pub":
        yield TraceEvent(
            time_ms=int(line[1]),
            kind="send",
            group=line[3],
            topic=line[4],
            message_id=line[5],
            tags=_text(line[6]),
            keys=_text(line[7]),
            broker=line[8],
            cost_ms=int(line[10]),
            is_success=line[12 if len(line) == 13 else 13] == "true",
        )
    elif line[0] == "SubBefore":
        end = ends.get((line[4], line[5]))
        yield TraceEvent(
            time_ms=int(line[1]),
            kind="consume",
            group=line[3],
            message_id=line[5],
            retries=int(line[6]),
            keys=_text(line[7]),
            cost_ms=int(end[3]) if end is not None else 0,
            is_success=end[4] == "true" if end is not None else None,
        )
    elif line[0] == "EndTransaction":
        yield TraceEvent(
            time_ms=int(line[1]),
            kind="end of transaction",
            group=line[3],
            topic=line[4],
            message_id=line[5],
            tags=_text(line[6]),
            keys=_text(line[7]),
            broker=line[8],
            state=line[11],
        )


def _text(field: str) -> str:
    return "" if field in _NONE else field


def _names(event: TraceEvent) -> set[str]:
    """The ids (a batch has several) and keys of an event."""
    return {*event.message_id.split(","), *event.keys.split()}
