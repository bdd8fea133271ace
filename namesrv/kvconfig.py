"""Key-value settings of administrators (RocketMQ: KVConfigManager)."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from congreve.base.table_limit import TableLimit
from congreve.namesrv.config import NamesrvConfig
from congreve.remoting.errors import BodyError
from congreve.remoting.messages import fastjson

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace whose keys are ordered topics, its values ``broker:queues;broker:queues``."""

T = TypeVar("T")
Table = dict[str, dict[str, str]]


class KvStore(Protocol):
    """Storage in which the settings survive a restart (RocketMQ: KVConfigManager.persist)."""

    def load(self, parse: Callable[[str], T]) -> T | None:
        """The result of `parse` for the text saved last; None without a usable one.

        `parse` raises a CongreveError for a text that it cannot use.
        """

    def replace_checked(self, text: str, is_same: Callable[[str], bool]) -> None:
        """Replace the text by one that `is_same`; raises a CongreveError if that fails."""


class _Saved(msgspec.Struct, rename="camel"):
    """Layout of kvConfig.json (RocketMQ: KVConfigSerializeWrapper)."""

    config_table: Table = {}


class KvConfig:
    """Settings by namespace and key; a change that cannot be saved has no effect.

    (RocketMQ: KVConfigManager.)
    """

    def __init__(self, store: KvStore | None = None, config: NamesrvConfig | None = None) -> None:
        limits = config or NamesrvConfig()
        self._store = store
        self._limit = TableLimit("maxKvSettings", "settings", lambda: limits.max_kv_settings)
        self._bytes_limit = TableLimit(
            "maxKvBytes", "bytes of settings", lambda: limits.max_kv_bytes
        )
        self._bytes = 0
        self._table: Table = {}
        self._turn = asyncio.Lock()

    def load(self) -> None:
        """Load the saved settings; there are none when these cannot be used."""
        if self._store is not None:
            self._table = self._store.load(_parse) or {}
            self._bytes = sum(
                len(namespace) + sum(len(key) + len(value) for key, value in settings.items())
                for namespace, settings in self._table.items()
            )

    def get(self, namespace: str, key: str) -> str | None:
        """One setting, None when it does not exist."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All settings of a namespace, None when it never had one."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value; it is saved when this returns.

        Raises TableFullError when there are maxKvSettings, or maxKvBytes would be exceeded.
        """
        async with self._turn:
            settings = self._table.get(namespace, {})
            old = settings.get(key)
            growth = len(value) - len(old or "")
            if old is None:
                self._limit.check(sum(max(len(of), 1) for of in self._table.values()))
                growth += len(key) + (0 if namespace in self._table else len(namespace))
            self._bytes_limit.check(self._bytes, max(growth, 0))
            await self._replace(namespace, settings | {key: value})
            self._bytes += growth

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a setting; it is saved when this returns."""
        async with self._turn:
            settings = self._table.get(namespace, {})
            if key in settings:
                await self._replace(namespace, {k: v for k, v in settings.items() if k != key})
                self._bytes -= len(key) + len(settings[key])

    async def _replace(self, namespace: str, settings: dict[str, str]) -> None:
        table = self._table | {namespace: settings}
        if self._store is not None:
            await asyncio.to_thread(_save, self._store, table)
        self._table = table


def _save(store: KvStore, table: Table) -> None:
    text = fastjson.dumps({"configTable": table})
    store.replace_checked(text, lambda again: _parse(again) == table)


def _parse(text: str) -> Table:
    try:
        return msgspec.convert(fastjson.loads(text), _Saved).config_table
    except msgspec.ValidationError as error:
        raise BodyError(f"saved key-value settings: {error}: {text[:200]!r}") from error
