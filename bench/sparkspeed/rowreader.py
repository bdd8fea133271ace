"""A naive reader for comparison: sequential pulls and a Python tuple for each message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from congreve.client.consumer.consumer import PullConsumer
from congreve.client.message import MessageQueue
from congreve.client.transport.client_thread import ClientThread

COLUMNS = {
    "body": "body binary",
    "rocketmq-spark": "topic string, flag int, body binary, properties string, brokerName string, "
    "queueId int, queueOffset bigint, bornTimestamp bigint, storeTimestamp bigint",
}


class RowSource(DataSource):
    """Options nameServer, topic, columns (of COLUMNS), pullBatchSize and rows (of each queue)."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rows"

    def schema(self) -> str:
        """The schema."""
        return COLUMNS[self.options["columns"]]

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch."""
        return RowReader(dict(self.options), len(schema))


class RowReader(DataSourceReader):
    """One task for each queue."""

    def __init__(self, options: dict[str, str], width: int) -> None:
        options = {name.lower(): value for name, value in options.items()}
        self._name_server, self._topic = options["nameserver"], options["topic"]
        self._batch, self._rows = int(options["pullbatchsize"]), int(options["rows"])
        self._width = width

    def partitions(self) -> list[InputPartition]:
        """One partition for each queue."""
        with self._client() as client:
            queues = client.run(client.client.queues(self._topic))
        return [InputPartition((q.topic, q.broker_name, q.queue_id)) for q in queues]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Pull a queue and yield a tuple for each message."""
        topic, broker, queue_id = partition.value
        queue = MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)
        with self._client() as client:
            offset = 0
            while offset < self._rows:
                pulled = client.run(client.client.pull(queue, offset, self._batch))
                if not pulled.messages:
                    return
                for message in pulled.messages:
                    yield (message.body,) if self._width == 1 else _nine(message, queue)
                offset = pulled.next_offset

    @contextmanager
    def _client(self) -> Iterator[ClientThread[PullConsumer]]:
        client = ClientThread("rows", lambda: PullConsumer(self._name_server, group="rows"))
        client.start()
        try:
            yield client
        finally:
            client.stop()


def _nine(message: Any, queue: MessageQueue) -> tuple[Any, ...]:
    return (
        *(message.topic, message.flag, message.body, json.dumps(message.properties)),
        *(queue.broker_name, queue.queue_id, message.queue_offset),
        *(message.born_timestamp, message.store_timestamp),
    )
