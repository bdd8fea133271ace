"""Messages: by id, key, offset and time, with filters; and one message with all its fields."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from congreve.base.errors import CongreveError
from congreve.client.admin.lookup import FOREVER_MS, Found, Part, SearchLimits
from congreve.client.errors import InvalidSettingError
from congreve.client.subscription import Sql, Subscription, subscribe
from congreve.console.web.formats import path_part
from congreve.console.web.pages import Visit, url
from congreve.console.web.shown_message import ShownMessage, body_contains, shown
from congreve.records.filter.kinds import ALL, TAG
from congreve.records.message.message import Record
from congreve.remoting.messages.body import MessageQueue

WAYS = {
    "newest": "Newest",
    "time": "By time",
    "key": "By key",
    "id": "By message id",
    "offset": "By queue and offset",
}
QUEUES_MAX = 64
"""Queues that one search reads."""
NEWEST = 64
KEY_RESULTS = 64
LIMITS = SearchLimits(results=100, messages=20_000, seconds=2.0)
OFFSET_DIGITS = 18
PERIOD_MS = 3_600_000


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the search form; times are texts of the browser, in UTC."""

    topic: str
    by: str
    key: str
    id: str
    queue: str
    offset: str
    begin: str
    end: str
    tags: str
    sql: str
    text: str
    rest: str


class Outcome(msgspec.Struct):
    """Found messages, and sentences about what was and what was not searched."""

    rows: list[ShownMessage]
    said: list[str]
    incomplete: bool = False
    more: str | None = None


async def messages(visit: Visit) -> Response:
    """The search form and its result."""
    fields = {name: visit.query(name) for name in Search.__struct_fields__}
    search = Search(**fields)
    if search.by not in WAYS:
        search = msgspec.structs.replace(search, by="newest")
    values: dict[str, Any] = {"search": search, "ways": WAYS, "outcome": None, "error": None}
    values["topics"] = sorted((await visit.cluster.snapshot()).topics)
    values["period"] = default_period()
    if search.topic:
        try:
            values["outcome"] = await find(visit, search)
        except CongreveError as error:
            values["error"] = str(error)
    return visit.page("messages/messages.html", **values)


async def message(visit: Visit) -> Response:
    """One message by its place: topic, broker, queue and offset."""
    topic, broker = visit.path("topic"), visit.path("broker")
    queue = MessageQueue(topic, broker, whole(visit.path("queue"), "queue"))
    found = await at_offset(visit, queue, whole(visit.path("offset"), "offset"))
    if found is None:
        raise HTTPException(404, "There is no message at this offset, or it has expired.")
    return visit.page(
        "messages/message.html", message=shown(found, all_of_it=True, with_body=visit.sees_bodies)
    )


async def body(visit: Visit) -> Response:
    """The body of a message as a file."""
    visit.check_sees_bodies()
    topic, broker = visit.path("topic"), visit.path("broker")
    queue = MessageQueue(topic, broker, whole(visit.path("queue"), "queue"))
    found = await at_offset(visit, queue, whole(visit.path("offset"), "offset"))
    each = None if found is None else shown(found, all_of_it=True)
    if each is None or each.body is None:
        raise HTTPException(404, "There is no message at this offset, or it cannot be read.")
    name = f"message-{each.queue_id}-{each.offset}.bin"
    return Response(
        each.body,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


def message_path(each: ShownMessage) -> str:
    """The path of a message's page."""
    parts = (each.topic, each.broker_name, str(each.queue_id), str(each.offset))
    return "/messages/" + "/".join(map(path_part, parts))


async def find(visit: Visit, search: Search) -> Outcome:
    """Run a search. Raises CongreveError for one that cannot be run."""
    if search.text and not visit.sees_bodies:
        raise InvalidSettingError("this console does not search bodies of messages for you")
    ways: dict[str, Callable[[Visit, Search], Any]] = {
        "id": _by_id,
        "key": _by_key,
        "offset": _by_offset,
        "time": _by_time,
        "newest": _newest,
    }
    outcome: Outcome = await ways[search.by](visit, search)
    return outcome


async def _by_id(visit: Visit, search: Search) -> Outcome:
    lookup = visit.cluster.lookup
    found = await lookup.by_key(search.topic, search.id, unique=True)
    if not found:
        try:
            one = await lookup.by_offset_id(search.id)
        except CongreveError:
            one = None  # no id of host and offset
        found = [one] if one is not None else []
    return _complete(visit, found, f"Looked for the id in the index of topic {search.topic}.")


async def _by_key(visit: Visit, search: Search) -> Outcome:
    if not search.key:
        raise InvalidSettingError("enter a key")
    begin, end = _period(search, FOREVER_MS)
    found = await visit.cluster.lookup.by_key(
        search.topic, search.key, begin_ms=begin, end_ms=end, count=KEY_RESULTS
    )
    outcome = _complete(visit, found, "Looked for the key in the index.")
    if len(found) >= KEY_RESULTS:
        outcome.incomplete = True
        outcome.said.append(f"A broker returns {KEY_RESULTS} messages at most: there may be more.")
    return outcome


async def _by_offset(visit: Visit, search: Search) -> Outcome:
    broker, _, number = search.queue.rpartition(":")
    queues = await visit.cluster.lookup.queues(search.topic)
    names = {queue.broker_name for queue in queues}
    if not broker and len(names) == 1:
        broker = names.pop()
    queue = MessageQueue(search.topic, broker, whole(number, "queue"))
    if queue not in queues:
        raise InvalidSettingError(
            f"topic {search.topic} has no queue {search.queue}: write broker:number"
        )
    low, high = await visit.cluster.lookup.ends(queue)
    start = max(whole(search.offset or str(low), "offset"), low)
    result = await visit.cluster.lookup.search(
        _subscription(search), [Part(queue, start, min(start + NEWEST, high))], _wanted(search)
    )
    outcome = _complete(visit, result.found, f"The queue holds offsets {low:,} to {high:,}.")
    if start + NEWEST < high:
        outcome.more = url(
            "/messages",
            **_given(search) | {"queue": f"{broker}:{number}", "offset": start + NEWEST},
        )
    return outcome


async def _newest(visit: Visit, search: Search) -> Outcome:
    lookup = visit.cluster.lookup
    queues = await lookup.queues(search.topic)
    each = max(1, NEWEST // max(1, min(len(queues), QUEUES_MAX)))
    parts = await lookup.newest(queues[:QUEUES_MAX], each)
    outcome = await _search(visit, search, parts)
    outcome.rows.reverse()
    outcome.said.insert(0, f"Read the last {each} messages of each queue.")
    return _few_queues(outcome, queues)


async def _by_time(visit: Visit, search: Search) -> Outcome:
    lookup = visit.cluster.lookup
    queues = await lookup.queues(search.topic)
    begin, end = _period(search, int(time.time() * 1000) + 1)
    if search.rest:
        parts = _rest(search, queues)
    else:
        parts = await lookup.between(queues[:QUEUES_MAX], begin, end)
    return _few_queues(await _search(visit, search, parts, begin, end), queues)


def _few_queues(outcome: Outcome, queues: list[MessageQueue]) -> Outcome:
    if len(queues) > QUEUES_MAX:
        outcome.incomplete = True
        outcome.said.append(f"Only {QUEUES_MAX} of {len(queues)} queues were read.")
    return outcome


async def _search(
    visit: Visit, search: Search, parts: list[Part], begin_ms: int = 0, end_ms: int = FOREVER_MS
) -> Outcome:
    result = await visit.cluster.lookup.search(
        _subscription(search), parts, _wanted(search, begin_ms, end_ms), LIMITS
    )
    outcome = _complete(visit, result.found, f"Searched {result.searched:,} messages.")
    if result.rest:
        outcome.incomplete = True
        outcome.said.append(f"{result.remaining:,} more messages were not searched.")
        rest = ",".join(
            f"{part.queue.broker_name}:{part.queue.queue_id}:{part.offset}:{part.end}"
            for part in result.rest
        )
        outcome.more = url("/messages", **_given(search) | {"by": "time", "rest": rest})
    return outcome


def _complete(visit: Visit, found: list[Found], said: str) -> Outcome:
    return Outcome([shown(each, with_body=visit.sees_bodies) for each in found], [said])


def _rest(search: Search, queues: list[MessageQueue]) -> list[Part]:
    """The parts of an earlier search, from the URL; only queues of the topic count."""
    known = {f"{queue.broker_name}:{queue.queue_id}": queue for queue in queues}
    parts = []
    for text in search.rest.split(",")[:QUEUES_MAX]:
        name, _, end = text.rpartition(":")
        name, _, offset = name.rpartition(":")
        if name in known:
            part = Part(known[name], whole(offset, "offset"), whole(end, "end"))
            parts.append(part)
    return parts


def _given(search: Search) -> dict[str, object]:
    return msgspec.structs.asdict(search)


def _subscription(search: Search) -> Subscription:
    """The filter that the broker applies. Raises ClientError for an invalid one."""
    if search.sql:
        return subscribe(search.topic, Sql(search.sql))
    return subscribe(search.topic, search.tags or "*")


def _wanted(
    search: Search, begin_ms: int = 0, end_ms: int = FOREVER_MS
) -> Callable[[Record], bool]:
    """The rest of the filter: store times, and text in the body."""

    def wanted(record: Record) -> bool:
        if not begin_ms <= record.store_timestamp < end_ms:
            return False
        return not search.text or body_contains(Found("", record), search.text)

    return wanted


async def at_offset(visit: Visit, queue: MessageQueue, offset: int) -> Found | None:
    """The message at an offset, None without one."""
    records, _, _ = await visit.cluster.lookup.pull(
        Subscription(queue.topic, ALL, TAG), queue, offset, 1
    )
    if not records or records[0].queue_offset != offset:
        return None
    return Found(queue.broker_name, records[0])


def whole(text: str, name: str) -> int:
    """A whole number from a form or path. Raises InvalidSettingError."""
    if not text.isascii() or not text.isdecimal() or len(text) > OFFSET_DIGITS:
        raise InvalidSettingError(f"{name} {text[:40]!r}: a whole number is expected")
    return int(text)


# --- times


def _period(search: Search, latest_ms: int) -> tuple[int, int]:
    begin = time_ms(search.begin) if search.begin else 0
    end = time_ms(search.end) + 1 if search.end else latest_ms
    if begin >= end:
        raise InvalidSettingError(f"the time {search.begin} is not before {search.end}")
    return begin, end


def time_ms(text: str) -> int:
    """Milliseconds of a time in UTC as a browser's field or a user writes it. Raises
    InvalidSettingError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidSettingError(
            f"time {text[:40]!r}: write for example 2026-01-31T12:00"
        ) from error
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000)


def default_period() -> tuple[str, str]:
    """The last hour, as the fields of a browser write it."""
    now = time.time()
    texts = (
        f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M}"
        for at in (now - PERIOD_MS / 1000, now + 60)
    )
    begin, end = texts
    return begin, end
