"""What a broker does again and again: offsets, figures, silent clients, replaced tables."""

from congreve.base.steps import freed
from congreve.broker.assembly.ports import Ports
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.message_counts import TopicCounts
from congreve.broker.figures.stats import SAMPLE_INTERVAL_S
from congreve.broker.managers import Managers
from congreve.broker.serving.message_paths import MessagePaths
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.remoting.loop.periodic import Periodic

HOUSEKEEPING_S = 10
FOLD_S = 1
"""How old topics.json and subscriptionGroup.json may be beside their journals, in seconds."""


class Housekeeping:
    """The periodic work of one broker (RocketMQ: the tasks of BrokerController.initialize)."""

    def __init__(self, config: BrokerConfig, managers: Managers, ports: Ports) -> None:
        self._config = config
        self._managers = managers
        self._ports = ports
        self.paths: MessagePaths | None = None
        """Set when the store is open."""
        self._replaced: list[ConsumeQueue | TopicCounts] = []

    def periodic(self) -> tuple[Periodic, ...]:
        """The work, for as long as the broker runs."""
        managers = self._managers
        flush_s = self._config.flush_consumer_offset_interval / 1000
        return (
            Periodic(HOUSEKEEPING_S, self._keep_house),
            Periodic(SAMPLE_INTERVAL_S, self._sample),
            Periodic(flush_s, managers.save_offsets),
            Periodic(FOLD_S, managers.files.fold),
        )

    async def _keep_house(self) -> None:
        managers, paths = self._managers, self.paths
        await managers.pieces.run(managers.members.locks.expiry_steps())
        if paths is not None:
            # Kept here, because the broker may stop while a lane still uses one of them.
            self._replaced.extend(paths.topics.take_retired())
            if self._replaced:
                await self._ports.lanes_passed()
            await managers.pieces.run(freed(self._replaced))
        await managers.members.close_silent()

    async def _sample(self) -> None:
        await self._managers.pieces.run(self._managers.stats.sample_steps())
