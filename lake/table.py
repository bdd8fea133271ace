"""The Iceberg table of a topic: each commit adds files and progress at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    ResolveError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.expressions import And, EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from congreve.lake.column_types import holds
from congreve.lake.commit_files import SORTED_BY, CommitFiles, table_schema
from congreve.lake.durable import SCHEMA
from congreve.lake.errors import CommitConflictError, TableError
from congreve.lake.progress import (
    PROPERTY,
    EndOffsets,
    LastMessage,
    OfBrokers,
    Progress,
    newest,
    to_properties,
)
from congreve.records.columns.same_message import OF_MESSAGE, fingerprint

_TRIES = 4
"""Tries to open a catalog; an exporter that begins at the same time creates two tables in it."""
PLACE = "commitLogOffset"
PROPERTIES = {
    # A repeated commit would add rows that the winner of the conflict has already added.
    TableProperties.COMMIT_NUM_RETRIES: "0",
    TableProperties.PARQUET_COMPRESSION: "zstd",
    TableProperties.PARQUET_COMPRESSION_LEVEL: "1",
    "write.metadata.metrics.column.body": "none",
    # Each commit writes the state of the table as a new file; older ones are deleted.
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
}
PARTITIONS = {"day": DayTransform, "hour": HourTransform}
BODY = "body"
BODY_FORMAT = "congreve.body-format"
"""The property of a table with columns of bodies: their format."""
BINARY = "binary"
"""The format of bodies without columns."""
REASON = "reason"
DEAD_LETTERS = "_dlq"
"""The end of the name of the table of messages whose bodies do not fit."""
DEAD_SCHEMA = SCHEMA.append(pa.field(REASON, pa.string(), nullable=False))
"""Its columns."""


def open_catalog(
    warehouse: str, uri: str | None = None, properties: Mapping[str, str] | None = None
) -> Catalog:
    """The catalog at `uri` (SQL or REST), by default a SQLite file in the folder `warehouse`.

    `properties` are those of pyiceberg and of its FileIO. Raises TableError for a warehouse that is
    a URI, without a catalog, and for a catalog that fails.
    """
    if uri is None:
        if "://" in warehouse:
            raise TableError(
                f"the warehouse is {warehouse}: without a catalog it is a local folder, which has "
                "the SQLite file; give the catalog's URI as well"
            )
        folder = Path(warehouse).absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TableError(f"the warehouse {folder} is no folder: {error.strerror}") from error
        # Without the escapes of as_uri(): pyarrow would take them for characters of the name.
        warehouse = f"file://{folder}"
        uri = URL.create("sqlite", database=f"{folder}/catalog.db").render_as_string()
    settings = {**(properties or {}), "uri": uri, "warehouse": warehouse}
    try:
        for _ in range(_TRIES - 1):
            with suppress(OperationalError):  # another one has created a table, or the disk fails
                return load_catalog("congreve", **settings)
        return load_catalog("congreve", **settings)
    except (RESTError, SQLAlchemyError, OSError) as error:
        raise TableError(f"the catalog {uri} failed: {error}") from error


def table_names(catalog: Catalog, namespace: str) -> list[str]:
    """The names of the tables in a namespace. Raises TableError when the catalog fails."""
    try:
        known = catalog.namespace_exists(namespace)
        return [name[-1] for name in catalog.list_tables(namespace)] if known else []
    except (RESTError, SQLAlchemyError, OSError) as error:
        raise TableError(f"the catalog failed for {namespace}: {error}") from error


class TopicTable:
    """A table that several processes may append to; each sees its own and others' commits."""

    def __init__(self, catalog: Catalog, name: str, schema: pa.Schema, partition: str) -> None:
        """The table NAMESPACE.NAME; create() partitions it by `partition` ("day", "hour").

        Raises TableError for another form of name.
        """
        _check_name(name)
        self._catalog = catalog
        self._schema = schema
        self._partition = partition
        self._table: Table
        self.name = name

    def load(self) -> bool:
        """Read the table's current state from the catalog; false if there is no table.

        A table may have more columns, and no column of whole bodies. Raises TableError when it
        lacks another one.
        """
        try:
            with self._catalog_errors():
                self._table = self._catalog.load_table(self.name)
        except NoSuchTableError:
            return False
        found = self._table.schema().column_names
        if not {*self._schema.names} <= {*found, BODY}:
            raise TableError(f"table {self.name} has the columns {found}, not those of messages")
        return True

    def create(self) -> None:
        """Create the table if there is none, and load() it.

        Raises TableError, also for a name that the catalog does not take.
        """
        try:
            self._create()
        except ValueError as error:
            raise TableError(f"table {self.name} cannot be created: {error}") from error
        self.load()

    def _create(self) -> None:
        with self._catalog_errors(), suppress(NamespaceAlreadyExistsError, IntegrityError):
            self._catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        # Another process may create the table at the same time.
        with (
            self._catalog_errors(),
            suppress(TableAlreadyExistsError, CommitFailedException),
            self._catalog.create_table_transaction(
                self.name, self._schema, properties=PROPERTIES
            ) as creation,
            creation.update_spec() as spec,
            creation.update_sort_order() as order,
        ):
            spec.add_field("storeTimestamp", PARTITIONS[self._partition](), self._partition)
            for name in SORTED_BY:
                order.asc(name, IdentityTransform())

    @property
    def iceberg(self) -> Table:
        """The table as of the last load() or commit."""
        return self._table

    @property
    def uuid(self) -> str:
        """What names this table, and no other one that had its name before or has it later."""
        return str(self._table.metadata.table_uuid)

    @property
    def tables(self) -> tuple[TopicTable, ...]:
        """This table."""
        return (self,)

    @property
    def body_format(self) -> str:
        """The format of bodies that have columns of their own, otherwise BINARY."""
        return self._table.properties.get(BODY_FORMAT, BINARY)

    def check_bodies(self) -> None:
        """Raises TableError if the table does not have whole bodies, which make up a message."""
        if BODY not in self._table.schema().column_names:
            raise TableError(f"table {self.name} has no column {BODY}: it has parts of messages")

    def dead_letters(self) -> TopicTable | None:
        """The table of messages whose bodies do not fit, None if there is none. Raises TableError.

        Those before the progress of this table, and its rows, are all messages before it. It is
        loaded after this table, so that none is missing.
        """
        if self.body_format == BINARY:
            return None
        dead = self.dead_letter_table()
        return dead if dead.load() else None

    def dead_letter_table(self) -> TopicTable:
        """The same, not loaded, and whether it exists or not."""
        name = f"{self.name}{DEAD_LETTERS}"
        return TopicTable(self._catalog, name, DEAD_SCHEMA, self._partition)

    def column_types(self) -> dict[str, pa.DataType]:
        """The types of all columns, as batches have them."""
        return {field.name: field.type for field in table_schema(self._table)}

    def add_columns(self, columns: pa.Schema, body_format: str) -> bool:
        """Add the columns of bodies that the table lacks; narrower types become those of `columns`.

        Returns whether that changed the table.
        Raises TableError for a column of another type, or if whole bodies are to be kept and the
        table does not have them, or the reverse; CommitConflictError if another process changes
        the table meanwhile.
        """
        has_body = BODY in self._table.schema().column_names
        if has_body != (BODY in self._schema.names):
            raise TableError(
                f"table {self.name} has {'a' if has_body else 'no'} column {BODY}: drop bodies as "
                "it does, or use another table"
            )
        known = self.column_types()
        if self.body_format == body_format and all(
            holds(known.get(column.name), column.type) for column in columns
        ):
            return False
        try:
            with self._catalog_errors(), self._table.transaction() as change:
                with change.update_schema() as update:
                    update.union_by_name(columns)
                change.set_properties({BODY_FORMAT: body_format})
        except CommitFailedException as error:
            raise CommitConflictError(f"table {self.name}: {error}") from error
        except (ResolveError, ValidationError, ValueError) as error:
            raise TableError(
                f"table {self.name} cannot have the columns of the schema: {error}"
            ) from error
        return True

    def progress(self) -> EndOffsets:
        """The end offsets of the table, as of the last load() or commit.

        Raises TableError when the table has snapshots but no progress: another program wrote it,
        or all snapshots with progress have expired.
        """
        return self._progress().ends

    def last_messages(self) -> OfBrokers:
        """What names the last message of each queue, of brokers whose exporter wrote that.

        Raises what progress() raises.
        """
        return self._progress().last

    def last_rows(self, broker: str, ends: Mapping[int, int]) -> dict[int, LastMessage]:
        """The same, read from the rows before the end offsets of some queues, by queue id.

        Without queues whose row is missing, or there twice. Raises TableError.
        """
        found: dict[int, LastMessage] = {}
        for queue_id, end in ends.items():
            condition = And(
                EqualTo(term=Reference("brokerName"), value=literal(broker)),
                And(
                    EqualTo(term=Reference("queueId"), value=literal(queue_id)),
                    EqualTo(term=Reference("queueOffset"), value=literal(end - 1)),
                ),
            )
            with self._catalog_errors():
                scan = self._table.scan(condition, selected_fields=(*OF_MESSAGE, PLACE))
                rows = scan.to_arrow()
            if len(rows) == 1:
                found[queue_id] = LastMessage(rows[PLACE][0].as_py(), fingerprint(rows))
        return found

    def _progress(self) -> Progress:
        found = newest(map(_properties, self.chain()))
        if found is None and self._table.current_snapshot() is not None:
            raise TableError(
                f"no snapshot of table {self.name} says which offsets it holds: "
                "another program wrote it, or the snapshots have expired"
            )
        return found or Progress({}, {})

    def with_progress(self) -> set[int]:
        """The id of the newest snapshot with the table's progress, if there is one."""
        known = (s.snapshot_id for s in self.chain() if PROPERTY in _properties(s))
        return {*islice(known, 1)}

    def chain(self) -> list[Snapshot]:
        """The current snapshot and its ancestors, newest first."""
        chain = []
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            chain.append(snapshot)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        return chain

    def new_files(self, body_format: str = BINARY) -> CommitFiles:
        """Files for one commit on top of the last loaded or committed state.

        Raises TableError if bodies in the table have another format than the rows will have.
        """
        if self.body_format != body_format:
            raise TableError(
                f"table {self.name} has columns of {self.body_format} bodies: export with their "
                "schema, or to another table"
            )
        return CommitFiles(self._table)

    def append(self, files: CommitFiles, progress: Progress) -> None:
        """Add files and progress in one commit, on top of the last loaded or committed state.

        Raises CommitConflictError when the table has changed since: then nothing was added, the
        files are deleted, and the caller must call load(). Raises TableError when the catalog does
        not answer: the commit may be there, so the files stay.
        """
        with (
            self._commit(files) as (added, change),
            change.update_snapshot(to_properties(progress)).fast_append() as snapshot,
        ):
            for file in added:
                snapshot.append_data_file(file)

    def replace(self, old: Iterable[DataFile], files: CommitFiles) -> None:
        """Put files with the same rows in the place of old ones; the progress stays.

        Raises what append() raises.
        """
        with (
            self._commit(files) as (added, change),
            change.update_snapshot(to_properties(self._progress())).overwrite() as snapshot,
        ):
            for file in old:
                snapshot.delete_data_file(file)
            for file in added:
                snapshot.append_data_file(file)

    def set_aside(self, name: str) -> None:
        """Give the table another name, NAMESPACE.NAME, under which it stays as it is.

        Raises TableError, also when there is no such table or namespace, or a table of that name.
        """
        _check_name(name)
        try:
            with self._catalog_errors():
                self._catalog.rename_table(self.name, name)
        except (NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError) as error:
            raise TableError(f"table {self.name} cannot be named {name}: {error}") from error

    def expire(self, snapshot_ids: list[int]) -> None:
        """Expire snapshots. Raises TableError, also if another process has changed the table."""
        try:
            with self._catalog_errors():
                if snapshot_ids:
                    self._table.maintenance.expire_snapshots().by_ids(snapshot_ids).commit()
        except CommitFailedException as error:
            raise CommitConflictError(f"table {self.name}: {error}") from error

    @contextmanager
    def _commit(self, files: CommitFiles) -> Iterator[tuple[list[DataFile], Transaction]]:
        if self._table.properties.get(TableProperties.COMMIT_NUM_RETRIES) != "0":
            raise TableError(
                f"table {self.name} needs the property {TableProperties.COMMIT_NUM_RETRIES}=0: "
                "a commit that is repeated on another snapshot duplicates rows"
            )
        added = files.finish()
        try:
            with self._catalog_errors(), self._table.transaction() as change:
                yield added, change
        except CommitFailedException as error:
            files.discard()
            raise CommitConflictError(f"table {self.name}: {error}") from error

    @contextmanager
    def _catalog_errors(self) -> Iterator[None]:
        try:
            yield
        except (RESTError, SQLAlchemyError, OSError) as error:
            raise TableError(f"the catalog failed for table {self.name}: {error}") from error


def _check_name(name: str) -> None:
    *namespace, last = name.split(".")
    if not namespace or not all(part.strip() for part in (*namespace, last)):
        raise TableError(f"{name!r} names no table: write NAMESPACE.NAME")


def _properties(snapshot: Snapshot) -> dict[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties
