"""``congreve lake``: copies topics into Iceberg tables."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from congreve.base.errors import CongreveError
from congreve.base.extras import missing_package
from congreve.console.option_types import FiniteRange, KeyValue, Pairs
from congreve.console.report import done, output_option, print_json

if TYPE_CHECKING:
    from congreve.engine.state.exported import ExportedFile, ExportedQueue
    from congreve.lake.bodies.body_schema import BodySchema
    from congreve.lake.export import Exporter
    from congreve.lake.follow import Follower
    from congreve.lake.table import TopicTable
    from congreve.lake.upkeep import UpkeepRules

Command = Callable[..., None]


@click.group(help="Copy topics into Iceberg tables.")
def lake() -> None:
    """The commands need the extra `lake`."""


def _with(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_folder = click.Path(exists=True, file_okay=False, path_type=Path)
_topics = click.option(
    "-t", "--topic", "topics", multiple=True, required=True, help="A topic; repeatable."
)
_table_options = _with(
    click.option("--warehouse", required=True, help="Folder of tables; a URI with --catalog."),
    click.option(
        "--catalog", help="URI of a SQL or REST catalog; default: SQLite in the warehouse."
    ),
    click.option(
        "--property",
        "properties",
        multiple=True,
        type=KeyValue(),
        help="A property of pyiceberg (S3, ...).",
    ),
    click.option("--table", help="NAMESPACE.NAME; default: rocketmq.TOPIC."),
)
_broker_name = click.option(
    "--broker-name", help="brokerName.  [default: that of the store's last start]"
)
_export_options = _with(
    click.option(
        "--store",
        required=True,
        type=_folder,
        help="The broker's storePathRootDir; the broker may be running.",
    ),
    click.option("--commit-log", type=_folder, help="storePathCommitLog, if the broker sets one."),
    _broker_name,
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
    click.option(
        "--body",
        "bodies",
        multiple=True,
        metavar="[TOPIC=]FORMAT:FILE",
        help="Bodies (json or avro) become columns, by the schema in a file; repeatable.",
    ),
    click.option(
        "--drop-bodies", is_flag=True, help="Tables with such columns have no column of bodies."
    ),
    click.option(
        "--confirmed-only",
        is_flag=True,
        help="Of a member of an elected group: what every later master has.",
    ),
)
_upkeep_options = _with(
    click.option(
        "--merge-bytes",
        type=click.IntRange(min=1),
        default=256 << 20,
        show_default=True,
        help="Files with fewer bytes of columns than half of it are merged up to it, in memory.",
    ),
    click.option(
        "--keep-snapshots",
        type=click.IntRange(min=1),
        default=10,
        show_default=True,
        help="Snapshots that never expire: the newest ones.",
    ),
    click.option(
        "--snapshot-hours",
        type=FiniteRange(min=0),
        default=120.0,
        show_default=True,
        help="Age at which snapshots expire.",
    ),
    click.option(
        "--orphan-hours",
        type=FiniteRange(min=0),
        default=24.0,
        show_default=True,
        help="Age at which files without a snapshot are removed; more than a commit takes.",
    ),
)


@lake.command(help="Append the durable messages that a topic's table lacks, and exit.")
@click.option("-t", "--topic", required=True, help="The topic.")
@_export_options
@_table_options
@output_option
def export(topic: str, output: str, **options: Any) -> None:
    """Export once; a repeated call continues where the table ends. A terminal shows progress."""
    exporter = _exporter(topic, **options)
    rows = _with_progress(exporter)
    later = exporter.not_durable()
    text = f"{rows} messages of {topic} were added to {exporter.table_name}"
    if later:
        text += f"; {later} more follow when the broker has written its next checkpoint"
    done(output, text, topic=topic, table=exporter.table_name, messages=rows, not_durable=later)


@lake.command(help="Append durable messages of topics to their tables until SIGTERM or SIGINT.")
@_topics
@click.option(
    "--lag",
    type=FiniteRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Seconds between exports: one begins with the broker's first checkpoint after half of "
    "them, and after twice as long without one.",
)
@click.option(
    "--note-progress",
    is_flag=True,
    help="Write what tables have to the store, for the broker's lakeRetention.",
)
@click.option("--note-only", is_flag=True, help="The same without exports: others make them.")
@click.option("--stop-with-stdin", is_flag=True, help="Also stop at the end of standard input.")
@click.option(
    "--upkeep-every",
    type=FiniteRange(min=0),
    default=1.0,
    show_default=True,
    help="Hours from one upkeep to the next; 0: none.",
)
@_upkeep_options
@_export_options
@_table_options
def follow(
    topics: tuple[str, ...],
    lag: float,
    note_progress: bool,
    note_only: bool,
    stop_with_stdin: bool,
    upkeep_every: float,
    **options: Any,
) -> None:
    """Follow topics; a signal ends the command after the current commit."""
    _check_table(topics, options["table"])
    rules = _upkeep_rules(options)
    from congreve.engine.state.exported import ExportedFile

    noted = None
    if note_progress or note_only:
        noted = ExportedFile(str(options["store"] / "congreve"))
    exporters = [_exporter(topic, noted=noted, **options) for topic in topics]
    from congreve.lake.follow import Follower
    from congreve.lake.upkeep import Upkeep

    kept = [Upkeep(table, rules) for exporter in exporters for table in exporter.table.tables]

    if note_only or not upkeep_every:
        kept = []
    follower = Follower(exporters, lag, kept, upkeep_every * 3600, noted, note_only=note_only)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: follower.stop())
    if stop_with_stdin:
        threading.Thread(target=_stop_with_stdin, args=(follower,), daemon=True).start()
    click.echo(f"following {', '.join(topics)}")
    click.echo(f"{follower.run()} messages were added")


@lake.command(help="Merge small files, expire snapshots, remove files that no snapshot refers to.")
@_topics
@_upkeep_options
@_table_options
@output_option
def upkeep(topics: tuple[str, ...], output: str, **options: Any) -> None:
    """Do what `follow` does every hour; exporters may run meanwhile."""
    _check_table(topics, options["table"])
    rules = _upkeep_rules(options)
    from congreve.lake.upkeep import Upkeep

    rows = []
    for topic in topics:
        table = _topic_table(topic, partition="day", **options)
        dead = table.dead_letters() if table.load() else None
        for each in (table, dead):
            if each is None:
                continue
            kept = Upkeep(each, rules).run()
            rows.append({"table": each.name, **asdict(kept)})
            if output == "table":
                click.echo(
                    f"{each.name}: {kept.merged} files became {kept.into}, {kept.expired} snapshots"
                    f" expired, {kept.removed} files were removed"
                )
    if output == "json":
        print_json(rows)


@lake.command(
    "set-aside",
    help="Rename a topic's table, as after the topic was deleted and made again: the export begins "
    "a new one.",
)
@click.option("-t", "--topic", required=True, help="The topic.")
@click.option("--to", "new_name", help="NAMESPACE.NAME; default: the table's name with the time.")
@_table_options
@output_option
def set_aside(topic: str, new_name: str | None, output: str, **options: Any) -> None:
    """Rename the table and that of its dead letters."""
    table = _topic_table(topic, partition="day", **options)
    if not table.load():
        raise CongreveError(f"there is no table {table.name}")
    to = new_name or f"{table.name}_{time.strftime('%Y%m%d_%H%M%S', time.gmtime())}"
    dead = table.dead_letters()
    table.set_aside(to)
    if dead is not None:
        from congreve.lake.table import DEAD_LETTERS

        dead.set_aside(f"{to}{DEAD_LETTERS}")
    done(output, f"{table.name} is named {to} now", table=table.name, new_name=to)


@lake.command(help="Show what tables have, and how far they are behind a store.")
@_topics
@click.option("--store", type=_folder, help="The broker's storePathRootDir.")
@click.option("--commit-log", type=_folder, help="storePathCommitLog, if the broker sets one.")
@_broker_name
@_table_options
@output_option
def status(
    topics: tuple[str, ...],
    store: Path | None,
    commit_log: Path | None,
    broker_name: str | None,
    output: str,
    **options: Any,
) -> None:
    """Print a line for each topic."""
    _check_table(topics, options["table"])
    rows = []
    for topic in topics:
        table = _topic_table(topic, partition="day", **options)
        from congreve.engine.errors import UnknownTopicError
        from congreve.lake.durable import DurableTopic
        from congreve.lake.status import status_of

        source = None if store is None else DurableTopic(store, topic, broker_name, commit_log)
        without = ""
        try:
            found = status_of(table, source)
        except UnknownTopicError:
            found = status_of(table)
            without = f"; the store has no message of {topic}, so 0 messages behind it"
        rows.append({"table": table.name, **asdict(found)})
        if output == "json":
            continue
        click.echo(
            f"{table.name}: {found.messages:,} messages in {found.files:,} files of "
            f"{found.bytes:,} bytes, {found.snapshots} snapshots"
            + (f", the last {_age_s(found.committed_ms):,.0f} s ago" if found.committed_ms else "")
            + ("" if found.dead_letters is None else f"; {found.dead_letters:,} dead letters")
            + ("" if found.behind is None else f"; {found.behind:,} messages behind the store")
            + ("" if found.oldest_ms is None else f", {_age_s(found.oldest_ms):,.0f} s")
            + without
        )
    if output == "json":
        print_json(rows)


@lake.command(help="Rebuild a store from the tables of topics, with the same queue offsets.")
@_topics
@click.option(
    "--store",
    required=True,
    type=click.Path(exists=False, path_type=Path),
    help="A folder that does not exist yet: the storePathRootDir of the restored broker.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="broker.conf, for the sizes of files.",
)
@click.option("--broker-name", help="brokerName, if the tables have messages of several.")
@_table_options
@output_option
def restore(
    topics: tuple[str, ...],
    store: Path,
    config: Path | None,
    broker_name: str | None,
    output: str,
    **options: Any,
) -> None:
    """Read the tables and write a new store."""
    _check_table(topics, options["table"])
    tables = [_topic_table(topic, partition="day", **options) for topic in topics]
    from congreve.broker.broker_conf import load_config
    from congreve.broker.config import BrokerConfig
    from congreve.lake.restore import Restore

    loaded = BrokerConfig() if config is None else load_config(config).config
    loaded.store.root_dir = str(store)
    restored = Restore(tables, broker_name, loaded.store).run()
    text = f"{restored} messages were restored to {store}"
    done(output, text, store=str(store), messages=restored)


def _with_progress(exporter: Exporter) -> int:
    """Export what is durable now; a terminal shows how far it is. Returns the messages."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *(*columns, TimeRemainingColumn()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("messages", total=exporter.missing() if console.is_terminal else None)
        exporter.progress = lambda rows: bar.advance(task, rows)
        return exporter.run()


def _age_s(moment_ms: int) -> float:
    return time.time() - moment_ms / 1000


def _check_table(topics: tuple[str, ...], table: str | None) -> None:
    if table is not None and len(topics) > 1:
        raise click.UsageError("--table is for one topic")


def _stop_with_stdin(follower: Follower) -> None:
    sys.stdin.read()
    follower.stop()


def _need_lake() -> None:
    """Raises MissingPackageError without the extra `lake`."""
    try:
        import congreve.lake.table  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_package(error, "lake") or error from error


def _upkeep_rules(options: dict[str, Any]) -> UpkeepRules:
    """Takes the values of _upkeep_options from all options."""
    _need_lake()
    from congreve.lake.upkeep import UpkeepRules

    return UpkeepRules(
        options.pop("merge_bytes"),
        options.pop("keep_snapshots"),
        options.pop("snapshot_hours") * 3600,
        options.pop("orphan_hours") * 3600,
    )


def _topic_table(
    topic: str,
    *,
    warehouse: str,
    catalog: str | None,
    properties: Pairs,
    table: str | None,
    partition: str,
    drop_bodies: bool = False,
) -> TopicTable:
    _need_lake()
    from congreve.lake.durable import SCHEMA
    from congreve.lake.table import TopicTable, open_catalog

    tables = open_catalog(warehouse, catalog, dict(properties))
    schema = SCHEMA.remove(SCHEMA.get_field_index("body")) if drop_bodies else SCHEMA
    return TopicTable(tables, table or f"rocketmq.{topic}", schema, partition)


def _exporter(
    topic: str,
    *,
    store: Path,
    commit_log: Path | None,
    broker_name: str | None,
    commit_bytes: int,
    bodies: tuple[str, ...],
    drop_bodies: bool,
    confirmed_only: bool,
    noted: ExportedFile | None = None,
    **options: Any,
) -> Exporter:
    schema = _body_schema(topic, bodies)
    table = _topic_table(topic, drop_bodies=drop_bodies and schema is not None, **options)
    from congreve.lake.bodies.body_table import BodyTable
    from congreve.lake.durable import DurableTopic
    from congreve.lake.export import Exporter

    source = DurableTopic(store, topic, broker_name, commit_log, confirmed_only=confirmed_only)
    if source.known_broker not in (None, source.broker):
        click.echo(
            f"{store} is the store of {source.known_broker}: messages that {table.name} has under"
            f" this name are added again as those of {source.broker}",
            err=True,
        )
    written = table if schema is None else BodyTable(table, schema, source.broker)

    def of_queues() -> Mapping[int, ExportedQueue]:
        known = {} if noted is None else noted.load()
        return known[topic].queues if topic in known else {}

    return Exporter(source, written, commit_bytes, of_queues)


def _body_schema(topic: str, bodies: tuple[str, ...]) -> BodySchema | None:
    """The schema of a topic's bodies: that with its name, otherwise one without a name."""
    of_topic = [text.removeprefix(f"{topic}=") for text in bodies if text.startswith(f"{topic}=")]
    of_all = [text for text in bodies if "=" not in text.partition(":")[0]]
    chosen = (of_topic or of_all)[-1:]
    if not chosen:
        return None
    try:
        from congreve.lake.bodies.body_schema import load_schema
    except ModuleNotFoundError as error:
        raise missing_package(error, "lake") or error from error
    return load_schema(chosen[0])
