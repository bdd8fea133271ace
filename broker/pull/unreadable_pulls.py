"""Pulls whose messages are not in memory, or whose queue has a damaged entry."""

from collections.abc import Callable

from congreve.broker.pull.answers import PullAnswers
from congreve.broker.pull.disk_wait import DiskWait, UnreadablePull
from congreve.broker.pull.lanes.pulls import SERVE_AGAIN_KIND
from congreve.broker.pull.progress import POLLED, PullProgress
from congreve.broker.pull.pull_quota import PullQuota
from congreve.engine.queue.consume_queue import ConsumeQueue
from congreve.engine.read.reader import GetStatus
from congreve.engine.store import MessageStore
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import PullMessageRequestHeader
from congreve.remoting.transport.connection import Connection

NoteRead = Callable[[Connection, int], None]


class UnreadablePulls:
    """Lets a thread read or repair what a lane could not, then gives the pull back to its lane.

    `note_read(connection, begun_ms)` gets pulls that have waited for the disk only. (RocketMQ
    reads in its threads of pulls.)
    """

    def __init__(
        self, store: MessageStore, answers: PullAnswers, quota: PullQuota, note_read: NoteRead
    ) -> None:
        self._store = store
        self._answers = answers
        self._note_read = note_read
        self._cold = DiskWait(
            fetch=store.cold_reads.fetch,
            give_back=self._give_back,
            dismiss=self._dismiss,
            delay_s=lambda pull: quota.read_delay_s(pull.frame, pull.connection),
        )
        self._damaged = DiskWait(
            fetch=self._start_repair, give_back=self._give_back, dismiss=self._dismiss
        )

    def add(self, connection: Connection, entry: bytes) -> None:
        """Let a pull wait until its messages are read, or its queue is repaired."""
        progress, frame = PullProgress.of_entry(entry)
        pull = UnreadablePull(connection, progress, frame)
        if progress.status == GetStatus.DAMAGED:
            header = PullMessageRequestHeader.read(RemotingCommand.decode(frame))
            queue = self._store.queues.get(header.topic, header.queue_id)
            self._damaged.suspend(pull, (queue, progress.place))
        else:
            self._cold.suspend(pull, progress.place)

    def stop(self) -> None:
        """Dismiss all waiting pulls; their connections are closed next."""
        self._cold.stop()
        self._damaged.stop()

    def _give_back(self, pull: UnreadablePull) -> None:
        """Let the lane answer, even if the filter matches none of the messages."""
        pull.connection.tell_lane(SERVE_AGAIN_KIND, pull.progress.entry(pull.frame))
        if not pull.progress.flags & POLLED:
            self._note_read(pull.connection, pull.progress.begun_ms)

    def _dismiss(self, pull: UnreadablePull) -> None:
        pull.connection.send(self._answers.stopping(RemotingCommand.decode(pull.frame)))

    def _start_repair(self, entry: tuple[ConsumeQueue, int], done: Callable[[], None]) -> bool:
        self._store.repairs.start(*entry).add_done_callback(lambda _: done())
        return True
