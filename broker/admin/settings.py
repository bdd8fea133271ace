"""The broker's settings over the network (RocketMQ: AdminBrokerProcessor)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from congreve.base import properties, settings
from congreve.base.clock import Clock
from congreve.broker.broker_conf import parse_config
from congreve.broker.config import BrokerConfig, all_settings
from congreve.broker.errors import ConfigError, RefusedError
from congreve.engine.errors import StoreError
from congreve.engine.state.state_file import DISK, FileSystem, StateFile
from congreve.remoting.messages.bodies import DataVersion
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

logger = logging.getLogger(__name__)

MAX_UPDATE = 64 << 10  # bytes of one request's key=value lines
# mqadmin exportConfigs fails without these, which have no effect here.
_ASKED_FOR = {"filterServerNums": "0", "useTLS": "false"}


class ConfigAdminProcessor:
    """GET_BROKER_CONFIG and UPDATE_BROKER_CONFIG (RocketMQ: AdminBrokerProcessor).

    `config_changed` is called with the keys that changed; they are saved in `config_path`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        config_path: Path | None,
        config_changed: Callable[[set[str]], Awaitable[None]],
        clock: Clock,
        files: FileSystem = DISK,
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._config_changed = config_changed
        self._clock = clock
        self._files = files
        self._turn = asyncio.Lock()
        self._version = DataVersion(counter=0, timestamp=clock.now())

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
        }

    def get_config(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """All settings as key=value lines (GET_BROKER_CONFIG)."""
        values = {**_ASKED_FOR, **self._config.public_settings()}
        lines = [f"{key}={value}\n" for key, value in sorted(values.items())]
        fields = {"version": self._version.encode().decode()}
        return request.reply(ResponseCode.SUCCESS, None, fields, "".join(lines).encode())

    async def update_config(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand:
        """Check all new values, save them to the configuration file, then apply them.

        It rejects all of them if one is invalid, or if the file cannot be written.
        """
        async with self._turn:
            try:
                texts = _key_values(request.body)
                later = self._only_after_restart(texts)
                self._config.changed(texts)
                now = self._config.changed({k: v for k, v in texts.items() if k not in later})
                if self._config_path is not None:
                    await asyncio.to_thread(_save, self._files, self._config_path, texts)
            except (ConfigError, StoreError, OSError, ValueError) as error:
                raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
            self._config.copy_from(now)
        logger.info("config updated by %s:%d: %s", *connection.peer, texts)
        self._version = DataVersion(counter=self._version.counter + 1, timestamp=self._clock.now())
        await self._config_changed(texts.keys() - later)
        remark = f"after a restart: {', '.join(sorted(later))}" if later else None
        return request.reply(ResponseCode.SUCCESS, remark)

    def _only_after_restart(self, texts: Mapping[str, str]) -> set[str]:
        """The keys that take effect after a restart. Raises ValueError for a key that is fixed."""
        where = "the broker's configuration file"
        changes = settings.check_changeable(all_settings(), texts, where)
        later = {
            key
            for key, setting in changes.items()
            if setting.change is settings.Change.AFTER_RESTART
        }
        if later and self._config_path is None:
            raise ConfigError(
                f"{', '.join(sorted(later))} would change after a restart, but this broker has no "
                f"configuration file: give it at the start, as in -o {min(later)}=VALUE"
            )
        return later


def _key_values(body: bytes | memoryview) -> dict[str, str]:
    if len(body) > MAX_UPDATE:
        raise ConfigError(f"{len(body)} bytes of settings: send at most {MAX_UPDATE} at once")
    text = bytes(body).decode()
    texts = properties.values(text)
    if not texts:
        raise ConfigError(f"no key=value in the request's body: {text[:200]!r}")
    return texts


def _save(files: FileSystem, path: Path, texts: Mapping[str, str]) -> None:
    """Write these values to the file if the next start could read the result.

    Raises ConfigError if it could not, StoreError or OSError if the file cannot be written.
    """
    target = path.resolve()  # a symbolic link stays
    try:
        text = properties.replace_values(target.read_text(encoding="utf-8"), texts)
    except (properties.PropertiesError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot change {path}: {error}") from error
    parse_config(text, path)
    StateFile(str(target), files=files).replace(text)
