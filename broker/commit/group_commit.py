"""Group commit: answers that wait until their messages are on disk and at a slave.

With SYNC_FLUSH or SYNC_MASTER the lane of a connection holds its answers (lane_commit.pyx), those
of handlers, too. (RocketMQ: GroupCommitService, GroupTransferService.)
"""

import os
import struct
import time

from congreve.broker.commit.lane_commit import HOLD_KIND, NO_SLAVE, SLAVE_LATE
from congreve.broker.commit.recode import recode
from congreve.broker.config import BrokerConfig
from congreve.broker.figures.put_times import requests_of
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.connection import Connection

_HELD = struct.Struct("@qq11i0q")
"""HandlerAnswer in lane_commit.pxd: the log's end, when it was stored (ns), requests by kind; as
long as in C."""
NOT_COUNTED = -1
"""Instead of the code of a request that PutTimes does not count."""


class GroupCommit:
    """Lets answers of handlers wait in the lanes, and says why answers were not confirmed.

    RocketMQ: CommitLog.GroupCommitService, GroupTransferService. After syncFlushTimeout an answer
    is FLUSH_DISK_TIMEOUT: stored, but not confirmed. After a failure of the backend it is
    SERVICE_NOT_AVAILABLE. With SYNC_MASTER it is FLUSH_SLAVE_TIMEOUT after slaveTimeout, and
    SLAVE_NOT_AVAILABLE without a usable slave.
    """

    def __init__(self, config: BrokerConfig, *, waits_for_slaves: bool = False) -> None:
        self._waits = config.store.sync_flush or waits_for_slaves
        slaves_ms, disk_ms = config.replication.slave_timeout, config.store.sync_flush_timeout
        self.timeout_s = (slaves_ms if waits_for_slaves else disk_ms) / 1000
        """How long an answer waits."""

    def answer(
        self, request: RemotingCommand, connection: Connection, answer: RemotingCommand, upto: int
    ) -> RemotingCommand | None:
        """The answer; None if the lane sends it when the log up to `upto` is durable."""
        if not self._waits or request.is_oneway or upto <= 0:
            return answer
        self._hold(connection, answer.encode(), upto, request.code)
        return None

    def send(self, connection: Connection, answers: bytes, upto: int) -> None:
        """Send encoded answers when the log up to `upto` is durable."""
        if self._waits and upto > 0:
            self._hold(connection, answers, upto, NOT_COUNTED)
        else:
            connection.write(answers)

    def _hold(self, connection: Connection, answers: bytes, upto: int, code: int) -> None:
        head = _HELD.pack(upto, time.monotonic_ns(), *requests_of(code))
        connection.tell_lane(HOLD_KIND, head + answers)

    def not_durable(self, answers: bytes, errno: int) -> bytes:
        """Answers that are not confirmed; `errno` is one, or a CommitFailure."""
        if errno > 0:
            why = f"the store failed to make the message durable: {os.strerror(errno)}"
            return recode(answers, ResponseCode.SERVICE_NOT_AVAILABLE, f"{why} (errno {errno})")
        if errno == NO_SLAVE:
            why = "stored, but no slave is near enough to wait for it"
            return recode(answers, ResponseCode.SLAVE_NOT_AVAILABLE, why)
        late = errno == SLAVE_LATE
        where = "at a slave" if late else "on disk"
        code = ResponseCode.FLUSH_SLAVE_TIMEOUT if late else ResponseCode.FLUSH_DISK_TIMEOUT
        why = f"stored, but not confirmed to be {where} within {self.timeout_s:g} s"
        return recode(answers, code, why)
