"""``congreve lake``: copies topics into Iceberg tables."""

from __future__ import annotations

from pathlib import Path

import click

from congreve.errors import CongreveError


@click.group(help="Copy topics into Iceberg tables.")
def lake() -> None:
    """The commands need the extra `lake`."""


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--property")
    return key, value


@lake.command(help="Append to a topic's table the durable messages that it lacks, and end.")
@click.option(
    "--store",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The broker's storePathRootDir; the broker may be running.",
)
@click.option(
    "--commit-log",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="storePathCommitLog, if the broker sets one.",
)
@click.option("-t", "--topic", required=True, help="The topic.")
@click.option("--warehouse", required=True, help="Folder of tables; a URI with --catalog.")
@click.option("--catalog", help="URI of a SQL or REST catalog; default: SQLite in the warehouse.")
@click.option("--property", "properties", multiple=True, help="KEY=VALUE for pyiceberg (S3, ...).")
@click.option("--table", help="NAMESPACE.NAME; default: rocketmq.TOPIC.")
@click.option("--broker-name", default="broker-a", show_default=True, help="brokerName.")
@click.option(
    "--partition",
    type=click.Choice(["day", "hour"]),
    default="day",
    show_default=True,
    help="Unit of store time for a new table's partitions.",
)
@click.option(
    "--commit-bytes",
    type=click.IntRange(min=1),
    default=128 << 20,
    show_default=True,
    help="Bytes of columns in a commit, before compression.",
)
def export(
    store: Path,
    commit_log: Path | None,
    topic: str,
    warehouse: str,
    catalog: str | None,
    properties: tuple[str, ...],
    table: str | None,
    broker_name: str,
    partition: str,
    commit_bytes: int,
) -> None:
    """Export once; a repeated call continues where the table ends."""
    try:
        from congreve.lake.durable import SCHEMA, DurableTopic
        from congreve.lake.export import Exporter
        from congreve.lake.table import TopicTable, open_catalog
    except ModuleNotFoundError as error:
        raise CongreveError(
            f"{error.name} is not installed: pip install 'congreve[lake]'"
        ) from error
    messages = DurableTopic(store, topic, broker_name, commit_log)
    messages.queues()  # an unknown topic gets no table
    target = TopicTable(
        open_catalog(warehouse, catalog, dict(map(_key_value, properties))),
        table or f"rocketmq.{topic}",
        SCHEMA,
        partition,
    )
    rows = Exporter(messages, target, commit_bytes).run()
    click.echo(f"{rows} messages of {topic} were added to {target.name}")
