"""Sends rows as messages: the batch and the stream sink. Delivery is at least once."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from congreve.base.errors import CongreveError
from congreve.client.checks import RESERVED_PROPERTIES
from congreve.client.errors import ClientError, InvalidNameError, RouteNotFoundError
from congreve.client.message import Message, MessageQueue
from congreve.client.producer.producer import Producer
from congreve.client.transport.client_thread import ClientThread
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from congreve.spark.errors import OptionError, SchemaError, SendError, SparkError
from congreve.spark.options import IGNORED

OPTIONS = ("nameServer", "topic", "group", "sendTimeoutMs", "maxDelayLevel")
PRODUCER_GROUP = "spark-congreve-sink"
BATCH = 200
"""Number of messages in a batch to one queue."""
BATCH_BYTES = 1 << 20
IN_FLIGHT = 8
DELAY_LEVELS = 18
"""The highest level of a broker's default messageDelayLevel."""

TYPES = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "properties": ("map<string,string>", "string"),
    "delayLevel": ("int", "bigint"),
    "queueId": ("int", "bigint"),
    "brokerName": ("string",),
}

Place = tuple[str, int | None, str | None]
"""Topic, queue id, broker."""


@dataclass(frozen=True)
class SinkOptions:
    """Options of the sink; `topic` is for rows without a topic of their own."""

    name_server: str
    topic: str | None
    group: str
    timeout_s: float
    max_delay_level: int = DELAY_LEVELS


@dataclass
class Sent(WriterCommitMessage):
    """Number of messages that one task sent."""

    messages: int


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse the sink's OPTIONS, ignoring case. Raises OptionError when one is invalid."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower() for name in OPTIONS} | IGNORED
    for name in options:
        if name.lower() not in known:
            raise OptionError(f"option {name} is unknown; to send, use {', '.join(OPTIONS)}")
    if not given.get("nameserver"):
        raise OptionError("option nameServer (host:port) is required to send")
    timeout = given.get("sendtimeoutms", "3000")
    if not timeout.isdecimal() or int(timeout) == 0:
        raise OptionError(f"option sendTimeoutMs is {timeout!r}: it must be milliseconds above 0")
    levels = given.get("maxdelaylevel", str(DELAY_LEVELS))
    if not levels.isdecimal() or int(levels) == 0:
        raise OptionError(f"option maxDelayLevel is {levels!r}: it must be a level above 0")
    return SinkOptions(
        name_server=given["nameserver"],
        topic=given.get("topic") or None,
        group=given.get("group") or PRODUCER_GROUP,
        timeout_s=int(timeout) / 1000,
        max_delay_level=int(levels),
    )


def check_sink(schema: StructType, options: SinkOptions) -> None:
    """Check that rows can be sent.

    Raises OptionError when an option is invalid or no name server answers, SchemaError when a
    column is unknown or has the wrong type.
    """
    for field in schema:
        allowed = TYPES.get(field.name)
        if allowed is None:
            raise SchemaError(f"no column {field.name!r} can be sent: there are {', '.join(TYPES)}")
        if field.dataType.simpleString() not in allowed:
            raise SchemaError(
                f"column {field.name} is {field.dataType.simpleString()}: "
                f"it must be {' or '.join(allowed)}"
            )
    if "body" not in schema.names:
        raise SchemaError("a column body is required to send")
    if options.topic is None and "topic" not in schema.names:
        raise OptionError("option topic or a column topic is required to send")
    try:
        thread = _producer(options)
    except InvalidNameError as error:
        raise OptionError(f"option group is {options.group!r}: {error}") from error
    try:
        thread.start()
        thread.run(thread.client.queues(options.topic or AUTO_CREATE_TOPIC_KEY_TOPIC))
    except RouteNotFoundError:
        pass  # the first message may create it
    except InvalidNameError as error:
        raise OptionError(f"option topic is {options.topic!r}: {error}") from error
    except ClientError as error:
        raise OptionError(f"option nameServer is {options.name_server!r}: {error}") from error
    finally:
        thread.stop()


class BatchSink(DataSourceArrowWriter):
    """Sends the rows of a batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task. Raises SendError when a row cannot be sent."""
        return send_all(iterator, self._options)


class StreamSink(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch; a repeated micro-batch is sent again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task. Raises SendError when a row cannot be sent."""
        return send_all(iterator, self._options)


def send_all(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> Sent:
    """Send every row. Raises SendError for the first row that is invalid or that no broker
    accepts."""
    thread = _producer(options)
    thread.start()
    try:
        sent = 0
        for batch in batches:
            messages = [
                (place, message)
                for number, row in enumerate(batch.to_pylist())
                for place, message in [_message(row, sent + number, options)]
            ]
            thread.run(_send(thread.client, messages))
            sent += len(messages)
        return Sent(sent)
    except SparkError:
        raise
    except CongreveError as error:
        raise SendError(f"to nameServer {options.name_server}: {error}") from error
    finally:
        thread.stop()


def _producer(options: SinkOptions) -> ClientThread[Producer]:
    return ClientThread(
        "spark-sink",
        lambda: Producer(
            options.name_server, group=options.group, send_timeout_s=options.timeout_s
        ),
    )


async def _send(producer: Producer, messages: list[tuple[Place, Message]]) -> None:
    """Send all messages: those of one destination in batches, delayed ones one by one."""
    by_place: dict[Place, list[Message]] = defaultdict(list)
    single: list[tuple[Place, Message]] = []
    for place, message in messages:
        if message.delay_level:
            single.append((place, message))
        else:
            by_place[place].append(message)
    slots = asyncio.Semaphore(IN_FLIGHT)
    turn = count()

    async def send(place: Place, group: list[Message]) -> None:
        async with slots:
            queue = await _queue(producer, place, next(turn))
            if len(group) == 1:
                await producer.send(group[0], queue=queue)
            else:
                await producer.send_batch(group, queue=queue)

    groups = [(place, part) for place, group in by_place.items() for part in _parts(group)]
    groups += [(place, [message]) for place, message in single]
    # The first failure is raised after all sends have ended.
    done = await asyncio.gather(*(send(*group) for group in groups), return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result


def _parts(messages: list[Message]) -> Iterator[list[Message]]:
    part: list[Message] = []
    size = 0
    for message in messages:
        if part and (len(part) == BATCH or size + len(message.body) > BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(message)
        size += len(message.body)
    yield part


async def _queue(producer: Producer, place: Place, turn: int) -> MessageQueue | None:
    """The queue that a row names; None when any queue will do."""
    topic, queue_id, broker = place
    if queue_id is None and broker is None:
        return None
    fitting = [
        queue
        for queue in await producer.queues(topic)
        if queue_id in (None, queue.queue_id) and broker in (None, queue.broker_name)
    ]
    if not fitting:
        raise ClientError(
            f"topic {topic} has no queue{'' if queue_id is None else f' {queue_id}'} "
            f"to write to on {broker or 'any broker'}"
        )
    return fitting[turn % len(fitting)]


def _message(row: dict[str, Any], number: int, options: SinkOptions) -> tuple[Place, Message]:
    topic, body = row.get("topic") or options.topic, row["body"]
    if topic is None:
        raise SendError(f"row {number} has no topic, and the option topic is not set")
    if body is None:
        raise SendError(f"row {number} for topic {topic} has no body")
    level = row.get("delayLevel") or 0
    if not 0 <= level <= options.max_delay_level:
        raise SendError(
            f"row {number}: column delayLevel is {level}: it must be 0 to "
            f"{options.max_delay_level}; option maxDelayLevel is for brokers with more levels"
        )
    message = Message(
        topic=topic,
        body=body.encode() if isinstance(body, str) else body,
        tags=row.get("tags"),
        keys=row.get("keys"),
        properties=_properties(row.get("properties"), number),
        delay_level=level,
    )
    return (topic, row.get("queueId"), row.get("brokerName")), message


def _properties(value: Any, number: int) -> dict[str, str]:
    """The user's properties, without those that brokers and clients set themselves."""
    try:
        pairs = dict(json.loads(value) if isinstance(value, str) else value or ())
    except (TypeError, ValueError) as error:
        raise SendError(f"row {number}: properties {value!r} are not a JSON object") from error
    return {
        str(name): str(text)
        for name, text in pairs.items()
        if name not in RESERVED_PROPERTIES and text is not None
    }
