"""Pops and acknowledgements in lanes: what they share, and what they tell the event loop."""

from congreve.base.clock import Clock
from congreve.broker.pop import waiting
from congreve.broker.pop.lanes.acks import LaneAcks
from congreve.broker.pop.lanes.lost_pops import lost_pops
from congreve.broker.pop.lanes.pops import LanePops
from congreve.broker.pop.lanes.server import (
    ACKNOWLEDGED_KIND,
    DUE_SOONER_KIND,
    POPPED_KIND,
    POPS_LOST_KIND,
    LanePopServer,
)
from congreve.broker.pop.service import Pops
from congreve.broker.pull.lanes.polling import watcher_of_lane
from congreve.broker.quotas.quota_table import QuotaTable
from congreve.engine.store import MessageStore
from congreve.records.message.pop_offsets import decode_message_offsets
from congreve.remoting.transport.connection import Connection


class PopLanes:
    """The pops of all lanes of one broker, for its event loop (RocketMQ: PopMessageProcessor)."""

    def __init__(
        self, pops: Pops, store: MessageStore, clock: Clock, broker_name: str, lanes: int
    ) -> None:
        self._pops = pops
        self._store = store
        self._clock = clock
        self._broker_name = broker_name.encode()
        self._lanes = lanes

    def server(self, number: int, quotas: QuotaTable) -> LanePopServer:
        """What serves the pops and acknowledgements of a lane."""
        pops = self._pops
        return LanePopServer(
            LanePops(
                *(self._store, pops.in_flight, pops.plans, self._broker_name),
                files_max=max(self._store.queues.writable.limit // 8, 1),
            ),
            LaneAcks(pops.in_flight, self._store.clock),
            pops.journal.records,
            quotas,
            watcher=watcher_of_lane(number),
            waiting_bytes_max=waiting.WAITING_BYTES_MAX // self._lanes,
        )

    def take_entry(self, connection: object, kind: int, data: bytes) -> bool:
        """Handle an entry that a lane passes to the event loop; False if it is of another kind."""
        if kind in (ACKNOWLEDGED_KIND, POPPED_KIND):
            self._answer(connection, data, waits=kind == ACKNOWLEDGED_KIND)
        elif kind == DUE_SOONER_KIND:
            self._pops.set_timer()
        elif kind == POPS_LOST_KIND:
            self.lost(data)
        else:
            return False
        return True

    def _answer(self, connection: object, answers: bytes, *, waits: bool) -> None:
        """Write the journal for a lane that could not, and send its answers, or let them wait."""
        if answers and isinstance(connection, Connection):
            self._pops.journal.answer_encoded(connection, answers, waits=waits)
        else:
            self._pops.journal.changed()

    def lost(self, data: bytes) -> None:
        """Let messages come again now whose clients were gone when a lane answered."""
        now = self._clock.now()
        for group, topic, pop_ms, text in lost_pops(data):
            for queue, offsets in decode_message_offsets(text).items():
                popped = queue.kind.stored_topic(group, topic)
                window = self._pops.in_flight.find(group, popped, queue.queue_id)
                if window is not None:
                    self._pops.redelivery.give_back(window, offsets, pop_ms, now)
        self._pops.changed()
