"""``congreve find``: messages by key, by id or by time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from congreve.base.errors import CongreveError
from congreve.client.admin import AdminClient
from congreve.console.connection import ask, cluster_options
from congreve.console.option_types import Time
from congreve.console.report import Rows, body_fields, output_option, show, shown_time

if TYPE_CHECKING:
    from congreve.client.admin.lookup import Found, MessageLookup, SearchResult

KEY_RESULTS = 64
"""A broker returns no more messages of a key."""


@click.command(help="Find messages by key, by id, or by the time when they were stored.")
@click.option("-t", "--topic", help="Their topic; an id with an offset in the log needs none.")
@click.option("-k", "--key", help="One of their keys.")
@click.option(
    "-i", "--id", "message_id", help="The id from a producer, or that of host and offset."
)
@click.option("--from", "from_ms", type=Time(), help="Stored at this time or later: or -15m.")
@click.option("--to", "to_ms", type=Time(), help="Stored before this time.")
@click.option("-c", "--count", type=click.IntRange(1, 10_000), default=20, show_default=True)
@cluster_options
@output_option
def find(
    topic: str | None,
    key: str | None,
    message_id: str | None,
    from_ms: int | None,
    to_ms: int | None,
    count: int,
    namesrv: str,
    output: str,
) -> None:
    """Print messages, oldest first (mqadmin: queryMsgByKey, queryMsgById, queryMsgByUniqueKey)."""
    has_period = from_ms is not None or to_ms is not None
    if (key is None) == (message_id is None) and not (key is None and has_period):
        raise click.UsageError("use one of --key and --id, or --from and --to alone")
    if topic is None and message_id is None:
        raise click.UsageError("--key, --from and --to need a --topic")

    async def question(admin: AdminClient) -> tuple[Rows, str | None]:
        from congreve.client.admin.lookup import FOREVER_MS, MessageLookup

        lookup = MessageLookup(admin)
        title = None
        begin_ms, end_ms = from_ms or 0, FOREVER_MS if to_ms is None else to_ms
        if message_id is not None:
            found = await _by_id(lookup, topic, message_id)
        elif key is not None:
            assert topic is not None
            found = await lookup.by_key(
                topic, key, begin_ms=begin_ms, end_ms=end_ms, count=KEY_RESULTS
            )
            if len(found) >= KEY_RESULTS:
                title = f"a broker finds {KEY_RESULTS} messages of a key: there may be more"
        else:
            assert topic is not None
            result = await _by_time(lookup, topic, begin_ms, min(end_ms, _now_ms()), count)
            found = result.found
            if result.rest:
                title = f"{result.remaining:,} messages of that time were not read"
        if len(found) > count:
            title = f"the first {count} of {len(found)}"
        return [_row(each, output) for each in found[:count]], title

    rows, title = ask(namesrv, question)
    if not rows:
        raise CongreveError("no such message: it has expired, or its topic is another one")
    show(rows, output, title, expand=True, shown={"stored_ms": shown_time, "born_ms": shown_time})


async def _by_id(lookup: MessageLookup, topic: str | None, message_id: str) -> list[Found]:
    if topic is not None and (found := await lookup.by_key(topic, message_id, unique=True)):
        return found
    try:
        one = await lookup.by_offset_id(message_id)
    except CongreveError:
        one = None
    if one is None and topic is None:
        raise CongreveError(
            f"{message_id} leads to no message of a registered broker: an id from a producer needs"
            " the --topic"
        )
    return [] if one is None else [one]


async def _by_time(
    lookup: MessageLookup, topic: str, begin_ms: int, end_ms: int, count: int
) -> SearchResult:
    from congreve.client.admin.lookup import SearchLimits
    from congreve.client.subscription import subscribe

    parts = await lookup.between(await lookup.queues(topic), begin_ms, end_ms)
    return await lookup.search(
        subscribe(topic),
        parts,
        lambda record: begin_ms <= record.store_timestamp < end_ms,
        SearchLimits(results=count),
    )


def _now_ms() -> int:
    return int(time.time() * 1000) + 1


def _row(found: Found, output: str) -> dict[str, Any]:
    from congreve.client.compression import decompress
    from congreve.console.web.shown_message import shown

    record = found.record
    message = shown(found, with_body=False)
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.offset,
        "message_id": message.message_id,
        "offset_id": message.offset_id,
        "tags": message.tags or None,
        "keys": message.keys or None,
        "born_ms": message.born_ms,
        "stored_ms": message.stored_ms,
        "born_host": message.born_host,
        "retries": message.reconsume_times,
        "properties": message.properties,
        **body_fields(lambda: decompress(record.body, record.sys_flag), output),
    }
