"""Parses and checks the options of a read before it starts.

Names are those of Spark's Kafka source and of rocketmq-spark where these have the option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from congreve.records.errors import FilterSyntaxError
from congreve.records.filter.kinds import FILTERS, SQL92, compiler_of
from congreve.records.filter.record_filter import RecordFilter
from congreve.spark.errors import OptionError
from congreve.spark.offsets import EARLIEST, LATEST, Position, parse_offsets, parse_timestamps

DEFAULT_PULL_BATCH = 4096
DEFAULT_TIMEOUT_MS = 3000
DEFAULT_READ_AHEAD = 8
DEFAULT_BROKER = "store"
DEFAULT_GROUP = "spark-congreve"

#: Options of Spark itself.
IGNORED = {"path", "checkpointlocation", "queryname"}
#: A stream reads no index, and Spark pushes no filters down to it.
BATCH_ONLY = ("key", "pushdown")


@dataclass(frozen=True)
class Selection:
    """Selects queues: topics by name or pattern, or `queues` {topic: {broker or None: ids}};
    `option` is the option's name."""

    option: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: dict[str, dict[str | None, tuple[int, ...]]] | None = None


@dataclass(frozen=True)
class Filter:
    """A filter that the source itself applies; fields that are None do not filter."""

    tags: tuple[str, ...] | None = None
    sql: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Lake:
    """Where the tables of topics are: `warehouse` with the catalog that it has by itself, or that
    of `catalog`; `table` is NAMESPACE.NAME of the only topic."""

    warehouse: str
    catalog: str | None = None
    table: str | None = None
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Options:
    """All options of a read; docs/spark.md explains each."""

    store_path: str | None
    name_server: str | None
    selection: Selection
    filter: Filter
    starting: Position
    ending: Position
    store_path_commit_log: str | None = None
    lake: Lake | None = None
    broker_name: str = DEFAULT_BROKER
    strategy: Literal["latest", "error"] = "latest"
    min_partitions: int = 0
    max_partitions: int = 0
    max_records_per_partition: int = 0
    max_offsets_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    fail_on_data_loss: bool = True
    group: str | None = None
    commit_offsets_to_group: bool = False
    columns: str = "all"
    properties_json: bool = False
    decompress_body: bool = True
    verify_crc: bool = False
    pushdown: bool = False
    pull_timeout_ms: int = DEFAULT_TIMEOUT_MS
    pull_batch_size: int = DEFAULT_PULL_BATCH
    read_ahead: int = DEFAULT_READ_AHEAD
    max_hash_slot_num: int = 0  # 0: as the store keeps it
    max_index_num: int = 0


NAMES = (
    "storePath",
    "nameServer",
    "topic",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "storePathCommitLog",
    "lake",
    "lakeCatalog",
    "lakeTable",
    "lakeProperties",
    "brokerName",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "group",
    "groupIdPrefix",
    "commitOffsetsToGroup",
    "subExpression",
    "expressionType",
    "tags",
    "key",
    "columns",
    "propertiesFormat",
    "decompressBody",
    "verifyCrc",
    "pushdown",
    "pullTimeoutMs",
    "pullBatchSize",
    "readAhead",
    "maxHashSlotNum",
    "maxIndexNum",
)


def parse(
    options: Mapping[str, str], *, streaming: bool | None = False, has_table: bool = False
) -> Options:
    """Parse the options of a read; `has_table` is for union(), which alone reads tables.

    With `streaming` None, rules that hold only for batches or only for streams are not checked.
    Raises OptionError, which names the option, its value and the expected form.
    """
    given = _Given(options)
    store_path, name_server = given.text("storePath"), given.text("nameServer")
    if (store_path is None) == (name_server is None):
        raise OptionError(
            "one of the options storePath (a store's folder) and nameServer (host:port) is needed"
            + (", not both" if store_path else "")
        )
    lake = _lake(given)
    if lake is not None and not has_table:
        raise OptionError(
            "option lake is only for congreve.spark.union.union(spark, options), which reads a "
            "table and the messages after it; format('rocketmq') and snapshot() read live messages"
        )
    chosen = _filter(given)
    starting, ending = _ends(given, streaming)
    for name in BATCH_ONLY if streaming else ():
        if given.text(name) not in (None, "false"):
            raise OptionError(f"option {name} is {given.text(name)!r}: only batches support it")
    least, most = given.number("minPartitions", 0), given.number("maxPartitions", 0)
    if 0 < most < least:
        raise OptionError(
            f"option minPartitions is {least}, maxPartitions {most}: it must be {least} or more"
        )
    return Options(
        store_path=store_path,
        name_server=name_server,
        selection=_selection(given),
        filter=chosen,
        starting=starting,
        ending=ending,
        store_path_commit_log=given.text("storePathCommitLog"),
        lake=lake,
        broker_name=given.text("brokerName") or DEFAULT_BROKER,
        strategy=given.one_of("startingOffsetsByTimestampStrategy", ("latest", "error")),
        min_partitions=least,
        max_partitions=most,
        max_records_per_partition=given.number("maxRecordsPerPartition", 0),
        max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", 0),
        max_bytes_per_trigger=given.number("maxBytesPerTrigger", 0),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        group=_group(given, name_server, streaming=streaming),
        commit_offsets_to_group=given.flag("commitOffsetsToGroup", False),
        columns=given.text("columns") or "all",
        properties_json=given.one_of("propertiesFormat", ("map", "json")) == "json",
        decompress_body=given.flag("decompressBody", True),
        verify_crc=given.flag("verifyCrc", False),
        pushdown=given.flag("pushdown", False),
        pull_timeout_ms=given.number("pullTimeoutMs", DEFAULT_TIMEOUT_MS),
        pull_batch_size=given.number("pullBatchSize", DEFAULT_PULL_BATCH),
        read_ahead=given.number("readAhead", DEFAULT_READ_AHEAD),
        max_hash_slot_num=given.number("maxHashSlotNum", 0),
        max_index_num=given.number("maxIndexNum", 0),
    )


class _Given:
    """The options as given: names ignore case, values are text."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in NAMES} | IGNORED
        for name in options:
            if name.lower() not in known:
                raise OptionError(f"option {name} is unknown; the options are {', '.join(NAMES)}")

    def text(self, name: str) -> str | None:
        """The option's text, None when it is absent. Raises OptionError when it is empty."""
        value = self._values.get(name.lower())
        if value is None:
            return None
        if not value.strip():
            raise OptionError(f"option {name} is empty")
        return value.strip()

    def number(self, name: str, default: int) -> int:
        """The option as a number above 0. Raises OptionError when it is not one."""
        value = self.text(name)
        if value is None:
            return default
        if not value.isdecimal() or not 0 < int(value) < 2**63:
            raise OptionError(f"option {name} is {value!r}: it must be a whole number above 0")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        """The option as a boolean. Raises OptionError when it is neither true nor false."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"option {name} is {value!r}: it must be true or false")
        return value.lower() == "true"

    def one_of(self, name: str, values: tuple[str, ...]) -> Any:
        """The option as one of `values`. Raises OptionError when it is another."""
        value = self.text(name) or values[0]
        if value.lower() not in values:
            raise OptionError(f"option {name} is {value!r}: it must be {' or '.join(values)}")
        return value.lower()

    def json(self, name: str, wrong: str = "not JSON") -> Any:
        """The option parsed as JSON. Raises OptionError when it is malformed."""
        value = self.text(name)
        try:
            return json.loads(value or "")
        except ValueError as error:
            raise OptionError(f"option {name} is {value!r}: {wrong} ({error})") from error

    def exclusive(self, *names: str) -> str | None:
        """The name that is given, None when none is. Raises OptionError when several are given."""
        found = [name for name in names if name.lower() in self._values]
        if len(found) > 1:
            raise OptionError(f"options {' and '.join(found)} exclude each other")
        return found[0] if found else None


def _ends(given: _Given, streaming: bool | None) -> tuple[Position, Position]:
    """Where a read starts and ends. Raises OptionError for a read that could have no messages."""
    starting = _position(given, "starting", LATEST if streaming else EARLIEST)
    ending = _position(given, "ending", LATEST)
    if streaming and ending != LATEST:
        raise OptionError("a stream has no end: leave out the ending... options, or use read")
    if streaming is False and starting == LATEST:
        raise OptionError("startingOffsets 'latest' reads nothing in a batch: use earliest")
    if None not in (starting.timestamp_ms, ending.timestamp_ms) and (
        (starting.timestamp_ms or 0) > (ending.timestamp_ms or 0)
    ):
        raise OptionError(
            f"options startingTimestamp {starting.timestamp_ms} and endingTimestamp "
            f"{ending.timestamp_ms} are the wrong way round"
        )
    if ending == EARLIEST:
        raise OptionError("endingOffsets 'earliest' reads nothing: use latest or JSON")
    return starting, ending


def _lake(given: _Given) -> Lake | None:
    warehouse = given.text("lake")
    for name in ("lakeCatalog", "lakeTable", "lakeProperties"):
        if warehouse is None and given.text(name) is not None:
            raise OptionError(f"option {name} needs the option lake, the folder of the tables")
    if warehouse is None:
        return None
    table = given.text("lakeTable")
    if table is not None and given.text("topic") is None:
        raise OptionError(f"option lakeTable is {table!r}: it needs the option topic")
    properties = []
    for part in (given.text("lakeProperties") or "").split(";"):
        name, equals, value = part.strip().partition("=")
        if part.strip() and not equals:
            raise OptionError(f"option lakeProperties has {part!r}: write KEY=VALUE;KEY=VALUE")
        if equals:
            properties.append((name, value))
    return Lake(warehouse, given.text("lakeCatalog"), table, tuple(properties))


def _selection(given: _Given) -> Selection:
    name = given.exclusive("topic", "subscribe", "subscribePattern", "assign")
    if name is None:
        raise OptionError("one of topic, subscribe, subscribePattern and assign is needed")
    value = given.text(name) or ""
    if name == "topic":
        return Selection(name, topics=(value,))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not topics:
            raise OptionError(f"option subscribe is {value!r}: write topics separated by commas")
        return Selection(name, topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(f"option subscribePattern is {value!r}: {error}") from error
        return Selection(name, pattern=value)
    assigned = given.json(name)
    try:
        queues = {str(topic): _assigned(brokers) for topic, brokers in assigned.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise OptionError(
            f'option assign is {value!r}: write {{"topic": [0, 1]}} or '
            '{"topic": {"broker": [0, 1]}}'
        ) from error
    return Selection(name, topics=tuple(queues), queues=queues)


def _assigned(brokers: Any) -> dict[str | None, tuple[int, ...]]:
    if isinstance(brokers, list):
        return {None: tuple(int(queue) for queue in brokers)}
    return {broker: tuple(int(queue) for queue in ids) for broker, ids in brokers.items()}


def record_filter(expression: str) -> RecordFilter:
    """A compiled SQL92 expression. Raises FilterSyntaxError when it is malformed."""
    return compiler_of(SQL92).compile(expression)


def _filter(given: _Given) -> Filter:
    kind = given.one_of("expressionType", tuple(map(str.lower, FILTERS)))
    name = given.exclusive("tags", "subExpression")
    key = given.text("key")
    if name is None:
        if kind == "sql92":
            raise OptionError("option expressionType is SQL92: option subExpression is missing")
        return Filter(key=key)
    expression = given.text(name) or ""
    if kind == "sql92" and name == "subExpression":
        try:
            record_filter(expression)
        except FilterSyntaxError as error:
            raise OptionError(f"option subExpression is {expression!r}: {error}") from error
        return Filter(sql=expression, key=key)
    if expression == "*":
        return Filter(key=key)
    tags = tuple(dict.fromkeys(tag.strip() for tag in expression.split("||")))
    if not all(tags):
        raise OptionError(f"option {name} is {expression!r}: write tags separated by ||, or *")
    return Filter(tags=tags, key=key)


def _position(given: _Given, side: str, default: Position) -> Position:
    names = (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp")
    name = given.exclusive(*names)
    if name is None:
        return default
    value = given.text(name) or ""
    if name == names[1]:
        if not value.isdecimal():
            raise OptionError(f"option {name} is {value!r}: it must be milliseconds since 1970")
        return Position(timestamp_ms=int(value), option=name)
    if name == names[2]:
        return Position(timestamps=parse_timestamps(name, given.json(name)), option=name)
    if value.lower() == "earliest":
        return EARLIEST
    if value.lower() == "latest":
        return LATEST
    wrong = "neither earliest nor latest nor JSON"
    return Position(offsets=parse_offsets(name, given.json(name, wrong)), option=name)


def _group(given: _Given, name_server: str | None, *, streaming: bool | None) -> str | None:
    group, prefix = given.text("group"), given.text("groupIdPrefix")
    commits = given.flag("commitOffsetsToGroup", False)
    if commits and group is None:
        raise OptionError("option commitOffsetsToGroup is true: name the group in option group")
    if commits and name_server is None:
        raise OptionError("option commitOffsetsToGroup needs nameServer: files hold no groups")
    if commits and streaming is False:
        raise OptionError("option commitOffsetsToGroup is true: only a stream commits offsets")
    return group or prefix or DEFAULT_GROUP
