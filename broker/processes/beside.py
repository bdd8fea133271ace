"""All processes beside one broker."""

import asyncio

from congreve.broker.config import BrokerConfig
from congreve.broker.processes.console_process import console_process
from congreve.broker.processes.lake_process import lake_process, parts_of
from congreve.broker.processes.side_process import SideProcess


class Beside:
    """Keeps a broker's processes running. (RocketMQ has no counterpart.)

    Raises ConfigError for settings of `lakeTopics` that cannot be.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.lake = lake_process(config)
        """The export of tables; None without lakeTopics."""
        self._processes: list[SideProcess] = []

    @property
    def exported_topics(self) -> list[str]:
        """The topics of lakeTopics."""
        return parts_of(self._config.lake.topics)

    def check(self) -> None:
        """Raises ConfigError for settings of `consolePort` that cannot be."""
        self._processes = [
            each for each in (self.lake, console_process(self._config)) if each is not None
        ]

    def start(self) -> None:
        """Start the processes, after check()."""
        for process in self._processes:
            process.start()

    def end(self) -> None:
        """Let them end, without waiting for that. Idempotent."""
        for process in self._processes:
            process.end()

    async def stop(self) -> None:
        """Wait until they have ended. Idempotent."""
        for process in self._processes:
            await asyncio.to_thread(process.stop)
