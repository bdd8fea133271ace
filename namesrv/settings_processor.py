"""Requests for key-value settings and the server's own (RocketMQ: DefaultRequestProcessor)."""

import asyncio
from collections.abc import Callable

from congreve.base import properties, settings
from congreve.namesrv.config import MAX_UPDATE, NamesrvConfig
from congreve.namesrv.errors import ConfigError
from congreve.namesrv.kvconfig import KvConfig, KvStore
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.admin_headers import (
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from congreve.remoting.messages.bodies import KVTable
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler


class SettingsProcessor:
    """Serves and changes key-value settings and `config`; changes of it go to `config_store`.

    `port` returns the port of the server. (RocketMQ: DefaultRequestProcessor.)
    """

    def __init__(
        self,
        kv: KvConfig,
        config: NamesrvConfig,
        config_store: KvStore | None,
        port: Callable[[], int],
        pieces: Pieces,
    ) -> None:
        self._kv = kv
        self._config = config
        self._config_store = config_store
        self._config_turn = asyncio.Lock()
        self._port = port
        self._pieces = pieces

    def handlers(self) -> dict[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_list,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    def load(self) -> None:
        """Read the saved settings. Raises BodyError."""
        self._kv.load()
        if self._config_store is None:
            return
        config = self._config_store.load(lambda text: self._config.changed(properties.values(text)))
        if config is not None:
            self._config.copy_from(config)

    async def _put_kv(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = PutKVConfigRequestHeader.read(request)
        await self._kv.put(header.namespace, header.key, header.value)
        return request.reply(ResponseCode.SUCCESS)

    async def _delete_kv(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetKVConfigRequestHeader.read(request)
        await self._kv.delete(header.namespace, header.key)
        return request.reply(ResponseCode.SUCCESS)

    def _get_kv(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        header = GetKVConfigRequestHeader.read(request)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        fields = GetKVConfigResponseHeader(value=value).fields()
        return request.reply(ResponseCode.SUCCESS, None, fields)

    async def _kv_list(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        namespace = GetKVListByNamespaceRequestHeader.read(request).namespace
        table = self._kv.namespace(namespace)
        if table is None:
            remark = f"No config item, Namespace: {namespace}"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark)
        body = await self._pieces.run(KVTable(table=table).encode_steps())
        return request.reply(ResponseCode.SUCCESS, body=body)

    async def _update_config(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        if len(request.body) > MAX_UPDATE:
            raise ConfigError(f"{len(request.body)} bytes of settings: at most {MAX_UPDATE} fit")
        changes = properties.values(request.body.decode("utf-8", "replace"))
        async with self._config_turn:
            config = self._config.changed(changes)
            if self._config_store is not None:
                texts = settings.as_texts(config)
                await asyncio.to_thread(
                    self._config_store.replace_checked,
                    properties.format_values(texts),
                    lambda again: properties.values(again) == texts,
                )
            self._config.copy_from(config)
        return request.reply(ResponseCode.SUCCESS)

    def _get_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        texts = settings.as_texts(self._config)
        texts["listenPort"] = str(self._port())
        return request.reply(ResponseCode.SUCCESS, body=properties.format_values(texts).encode())
