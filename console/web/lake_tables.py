"""The figures of topics' tables, from their catalog and a store."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from congreve.base.errors import CongreveError
from congreve.console.web.options import Options
from congreve.console.web.refreshed import Refreshed

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

NAMESPACE = "rocketmq"
AGE_S = 5.0
"""How old the figures of a page may be."""


class TableRow(msgspec.Struct, frozen=True):
    """A table; `trouble` says why there are no figures.

    `behind` is the number of a store's messages that the table lacks, None without a store, and
    `oldest_ms` the store time of the oldest of them. `dead_letters` are messages whose bodies do
    not fit, None if the table has no columns of bodies. Times in ms since 1970, 0 without one.
    """

    topic: str
    messages: int = 0
    files: int = 0
    nbytes: int = 0
    snapshots: int = 0
    committed_ms: int = 0
    behind: int | None = None
    oldest_ms: int | None = None
    dead_letters: int | None = None
    trouble: str = ""


class LakeTables:
    """The tables of `--lake`, read by one thread at a time."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._rows = Refreshed(self._read, AGE_S)

    async def rows(self) -> list[TableRow]:
        """A row for each topic's table. Raises CongreveError when the catalog fails."""
        return [] if self._options.lake is None else await self._rows.get()

    async def _read(self) -> list[TableRow]:
        return await asyncio.to_thread(read_tables, self._options)


def read_tables(options: Options) -> list[TableRow]:
    """The status of each table of a topic in the warehouse `options.lake`.

    Raises CongreveError when the catalog fails.
    """
    try:
        from congreve.lake.table import DEAD_LETTERS, open_catalog, table_names
    except ModuleNotFoundError as error:
        raise CongreveError(
            f"{error.name} is not installed: pip install 'congreve[lake]'"
        ) from error
    assert options.lake is not None, "there is a warehouse"
    catalog = open_catalog(options.lake, options.lake_catalog, dict(options.lake_properties))
    names = table_names(catalog, NAMESPACE)
    of_others = {f"{name}{DEAD_LETTERS}" for name in names}
    return [_row(catalog, name, options) for name in sorted({*names} - of_others)]


def _row(catalog: "Catalog", topic: str, options: Options) -> TableRow:
    from congreve.engine.errors import UnknownTopicError
    from congreve.lake.durable import SCHEMA, DurableTopic
    from congreve.lake.errors import NotDurableError
    from congreve.lake.status import status_of
    from congreve.lake.table import TopicTable

    table = TopicTable(catalog, f"{NAMESPACE}.{topic}", SCHEMA, "day")
    store = options.store
    try:
        source = None if store is None else DurableTopic(store, topic, options.lake_broker)
        try:
            found = status_of(table, source)
        except (UnknownTopicError, NotDurableError):  # a topic of another broker, a new store
            found = status_of(table)
    except CongreveError as error:
        return TableRow(topic, trouble=str(error))
    return TableRow(
        topic,
        found.messages,
        found.files,
        found.bytes,
        found.snapshots,
        found.committed_ms,
        found.behind,
        found.oldest_ms,
        found.dead_letters,
    )
