"""The tables of a broker's topics as its archive: reads beyond retention (`lakeRetention`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from congreve.broker.processes.lake_process import parts_of

if TYPE_CHECKING:
    from congreve.broker.config import BrokerConfig
    from congreve.broker.pull.archive import MessageArchive, OpenArchive
    from congreve.engine.exported_queues import ExportedQueues


def archive_of(config: BrokerConfig) -> OpenArchive | None:
    """Opens the tables of lakeTopics of `config`; None without lakeRetention.

    Nothing is imported or opened before a thread calls the result, which raises TableError when the
    catalog does not answer.
    """
    if not config.lake.retention:
        return None

    def open_archive(exported: ExportedQueues) -> MessageArchive:
        from congreve.lake.durable import SCHEMA
        from congreve.lake.table import TopicTable, open_catalog
        from congreve.lake.table_archive import TableArchive

        properties = dict(text.split("=", 1) for text in parts_of(config.lake.properties))
        catalog = open_catalog(config.lake.warehouse, config.lake.catalog or None, properties)
        tables = {
            topic: TopicTable(catalog, f"rocketmq.{topic}", SCHEMA, config.lake.partition)
            for topic in parts_of(config.lake.topics)
        }
        return TableArchive(tables, config.broker_name, exported)

    return open_archive
