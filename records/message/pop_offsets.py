"""The offsets of popped messages as texts, queue by queue (RocketMQ 5: ExtraInfoUtil).

Entries ``kind queue value`` are joined by ``;``. A queue stands in a text once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from congreve.records.errors import RecordError
from congreve.records.message.pop_handle import PoppedFrom, number

_ENTRY_SEPARATOR = ";"
_SEPARATOR = " "
_OFFSET_SEPARATOR = ","
_AT_OFFSET = "qo"

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class PoppedQueue(NamedTuple):
    """One queue of a pop."""

    kind: PoppedFrom
    queue_id: int


class PoppedMessage(NamedTuple):
    """One message of an ordered pop."""

    kind: PoppedFrom
    queue_id: int
    offset: int


# --- startOffsetInfo: the first offset that a pop took from each queue


def encode_start_offsets(starts: Mapping[PoppedQueue, int]) -> str:
    """``0 3 100;1 0 7``"""
    return _ENTRY_SEPARATOR.join(_entry(queue, start) for queue, start in starts.items())


def decode_start_offsets(text: str) -> dict[PoppedQueue, int]:
    """Raises RecordError."""
    return _entries(text, _queue, _offset)


# --- msgOffsetInfo: the offsets of the messages of each queue, in their order in the body


def encode_message_offsets(offsets: Mapping[PoppedQueue, Iterable[int]]) -> str:
    """``0 3 100,101,105``"""
    return _ENTRY_SEPARATOR.join(
        _entry(queue, _OFFSET_SEPARATOR.join(map(str, of_queue)))
        for queue, of_queue in offsets.items()
    )


def decode_message_offsets(text: str) -> dict[PoppedQueue, Sequence[int]]:
    """Raises RecordError."""
    return _entries(
        text, _queue, lambda value: [_offset(each) for each in value.split(_OFFSET_SEPARATOR)]
    )


# --- orderCountInfo: how often messages of ordered pops were handed out before


def encode_order_counts(counts: Mapping[PoppedQueue | PoppedMessage, int]) -> str:
    """``0 qo3%100 2;0 3 0``: of one message, or of a queue's messages without a count of their
    own."""
    return _ENTRY_SEPARATOR.join(_entry(key, count) for key, count in counts.items())


def decode_order_counts(text: str) -> dict[PoppedQueue | PoppedMessage, int]:
    """Raises RecordError."""
    return _entries(text, _queue_or_message, number)


# --- entries


def _entry(key: PoppedQueue | PoppedMessage, value: int | str) -> str:
    if isinstance(key, PoppedMessage):
        return f"{key.kind.value} {_AT_OFFSET}{key.queue_id}%{key.offset} {value}"
    return f"{key.kind.value} {key.queue_id} {value}"


def _entries(
    text: str, read_key: Callable[[PoppedFrom, str], _Key], read_value: Callable[[str], _Value]
) -> dict[_Key, _Value]:
    found: dict[_Key, _Value] = {}
    for entry in text.split(_ENTRY_SEPARATOR) if text else ():
        parts = entry.split(_SEPARATOR)
        if len(parts) != 3:
            raise RecordError(f"{entry[:200]!r} in an offset text has not three parts")
        kind, queue, value = parts
        key = read_key(PoppedFrom.parse(kind), queue)
        if key in found:
            raise RecordError(f"{kind} {queue[:40]} stands twice in the offset text {text[:200]!r}")
        found[key] = read_value(value)
    return found


def _queue(kind: PoppedFrom, text: str) -> PoppedQueue:
    return PoppedQueue(kind, number(text))


def _queue_or_message(kind: PoppedFrom, text: str) -> PoppedQueue | PoppedMessage:
    if not text.startswith(_AT_OFFSET):
        return _queue(kind, text)
    queue, _, offset = text.removeprefix(_AT_OFFSET).partition("%")
    return PoppedMessage(kind, number(queue), _offset(offset))


def _offset(text: str) -> int:
    return number(text, 64)
