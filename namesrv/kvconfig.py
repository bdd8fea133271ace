"""Key-value settings that administrators keep at name servers (RocketMQ: KVConfigManager)."""

import asyncio
from typing import Protocol

import msgspec

from congreve.remoting import fastjson
from congreve.remoting.errors import BodyError

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace whose keys are ordered topics, its values ``broker:queues;broker:queues``."""

Table = dict[str, dict[str, str]]


class KvStore(Protocol):
    """Where the settings survive a restart."""

    def load(self) -> str | None:
        """The text saved last, None where there is none."""

    def save(self, text: str) -> None:
        """Replace the text; raises a CongreveError where that fails."""


class _Saved(msgspec.Struct, rename="camel"):
    """Layout of kvConfig.json (RocketMQ: KVConfigSerializeWrapper)."""

    config_table: Table = {}


class KvConfig:
    """Settings by namespace and key. A change counts when it is saved, else nothing changed."""

    def __init__(self, store: KvStore | None = None) -> None:
        self._store = store
        self._table: Table = {}
        self._turn = asyncio.Lock()

    def load(self) -> None:
        """Take what is saved. Raises BodyError where it cannot be read."""
        text = self._store.load() if self._store is not None else None
        if not text:
            return
        try:
            self._table = msgspec.convert(fastjson.loads(text), _Saved).config_table
        except msgspec.ValidationError as error:
            raise BodyError(f"saved key-value settings: {error}: {text[:200]!r}") from error

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All settings of a namespace, None where it never had one."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        async with self._turn:
            await self._replace(namespace, self._table.get(namespace, {}) | {key: value})

    async def delete(self, namespace: str, key: str) -> None:
        async with self._turn:
            settings = self._table.get(namespace, {})
            if key in settings:
                await self._replace(namespace, {k: v for k, v in settings.items() if k != key})

    async def _replace(self, namespace: str, settings: dict[str, str]) -> None:
        table = self._table | {namespace: settings}
        if self._store is not None:
            text = fastjson.dumps({"configTable": table})
            await asyncio.to_thread(self._store.save, text)
        self._table = table
