"""``congreve lake``: copies topics into Iceberg tables."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from congreve.errors import CongreveError

if TYPE_CHECKING:
    from congreve.lake.export import Exporter
    from congreve.lake.follow import Follower


@click.group(help="Copy topics into Iceberg tables.")
def lake() -> None:
    """The commands need the extra `lake`."""


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--property")
    return key, value


def _table_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a store and its tables."""
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--store",
            required=True,
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="The broker's storePathRootDir; the broker may be running.",
        ),
        click.option(
            "--commit-log",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="storePathCommitLog, if the broker sets one.",
        ),
        click.option("--warehouse", required=True, help="Folder of tables; a URI with --catalog."),
        click.option(
            "--catalog", help="URI of a SQL or REST catalog; default: SQLite in the warehouse."
        ),
        click.option(
            "--property", "properties", multiple=True, help="KEY=VALUE for pyiceberg (S3, ...)."
        ),
        click.option("--table", help="NAMESPACE.NAME; default: rocketmq.TOPIC."),
        click.option("--broker-name", default="broker-a", show_default=True, help="brokerName."),
        click.option(
            "--partition",
            type=click.Choice(["day", "hour"]),
            default="day",
            show_default=True,
            help="Unit of store time for a new table's partitions.",
        ),
        click.option(
            "--commit-bytes",
            type=click.IntRange(min=1),
            default=512 << 20,
            show_default=True,
            help="Bytes of columns in a commit, before compression.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@lake.command(help="Append the durable messages that a topic's table lacks, and exit.")
@click.option("-t", "--topic", required=True, help="The topic.")
@_table_options
def export(topic: str, **options: Any) -> None:
    """Export once; a repeated call continues where the table ends."""
    exporter = _exporter(topic, **options)
    rows = exporter.run()
    click.echo(f"{rows} messages of {topic} were added to {exporter.table_name}")


@lake.command(help="Append durable messages of topics to their tables until SIGTERM or SIGINT.")
@click.option("-t", "--topic", "topics", multiple=True, required=True, help="A topic; repeatable.")
@click.option(
    "--lag",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Seconds from the start of one export to the start of the next.",
)
@click.option("--stop-with-stdin", is_flag=True, help="Also stop at the end of standard input.")
@_table_options
def follow(topics: tuple[str, ...], lag: float, stop_with_stdin: bool, **options: Any) -> None:
    """Follow topics; a signal ends the command after the current commit."""
    if options["table"] is not None and len(topics) > 1:
        raise click.UsageError("--table is for one topic")
    exporters = [_exporter(topic, **options) for topic in topics]
    from congreve.lake.follow import Follower

    follower = Follower(exporters, lag)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: follower.stop())
    if stop_with_stdin:
        threading.Thread(target=_stop_with_stdin, args=(follower,), daemon=True).start()
    click.echo(f"following {', '.join(topics)}")
    click.echo(f"{follower.run()} messages were added")


def _stop_with_stdin(follower: Follower) -> None:
    sys.stdin.read()
    follower.stop()


def _exporter(
    topic: str,
    *,
    store: Path,
    commit_log: Path | None,
    warehouse: str,
    catalog: str | None,
    properties: tuple[str, ...],
    table: str | None,
    broker_name: str,
    partition: str,
    commit_bytes: int,
) -> Exporter:
    try:
        from congreve.lake.durable import SCHEMA, DurableTopic
        from congreve.lake.export import Exporter
        from congreve.lake.table import TopicTable, open_catalog
    except ModuleNotFoundError as error:
        raise CongreveError(
            f"{error.name} is not installed: pip install 'congreve[lake]'"
        ) from error
    messages = DurableTopic(store, topic, broker_name, commit_log)
    target = TopicTable(
        open_catalog(warehouse, catalog, dict(map(_key_value, properties))),
        table or f"rocketmq.{topic}",
        SCHEMA,
        partition,
    )
    return Exporter(messages, target, commit_bytes)
