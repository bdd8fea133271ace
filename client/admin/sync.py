"""Administration by programs without an event loop (RocketMQ: DefaultMQAdminExt)."""

from typing import Unpack

from congreve.client.admin.client import AdminClient
from congreve.client.admin.dead_letters import DeadLetterAdmin
from congreve.client.admin.groups import GroupAdmin
from congreve.client.admin.timers import TimerAdmin
from congreve.client.admin.traces import TraceAdmin
from congreve.client.transport.client_thread import SyncClient, SyncPart, blocking
from congreve.client.transport.options import ConnectionOptions, check_options


class SyncGroupAdmin(SyncPart[GroupAdmin]):
    """GroupAdmin without an event loop."""

    names = blocking(GroupAdmin.names)
    summaries = blocking(GroupAdmin.summaries)
    lag = blocking(GroupAdmin.lag)
    members = blocking(GroupAdmin.members)
    create = blocking(GroupAdmin.create)
    reset = blocking(GroupAdmin.reset)
    delete = blocking(GroupAdmin.delete)
    retry_limit = blocking(GroupAdmin.retry_limit)


class SyncDeadLetterAdmin(SyncPart[DeadLetterAdmin]):
    """DeadLetterAdmin without an event loop."""

    groups = blocking(DeadLetterAdmin.groups)
    newest = blocking(DeadLetterAdmin.newest)
    get = blocking(DeadLetterAdmin.get)
    count = blocking(DeadLetterAdmin.count)
    resend = blocking(DeadLetterAdmin.resend)


class SyncTimerAdmin(SyncPart[TimerAdmin]):
    """TimerAdmin without an event loop."""

    count_by_hour = blocking(TimerAdmin.count_by_hour)
    upcoming = blocking(TimerAdmin.upcoming)
    recall = blocking(TimerAdmin.recall)
    recall_sent = blocking(TimerAdmin.recall_sent)


class SyncTraceAdmin(SyncPart[TraceAdmin]):
    """TraceAdmin without an event loop."""

    of_message = blocking(TraceAdmin.of_message)


class SyncAdminClient(SyncClient[AdminClient]):
    """An AdminClient for programs without an event loop.

    ``with SyncAdminClient("host:9876") as admin``; arguments, results and errors are those of
    AdminClient. (RocketMQ: DefaultMQAdminExt.)
    """

    def __init__(
        self, namesrv: str, *, timeout_s: float = 3.0, **connection: Unpack[ConnectionOptions]
    ) -> None:
        check_options(self, connection, ConnectionOptions)
        super().__init__("admin", lambda: AdminClient(namesrv, timeout_s=timeout_s, **connection))
        client = self._part
        self.groups = SyncGroupAdmin(self._thread, client.groups)
        self.traces = SyncTraceAdmin(self._thread, client.traces)
        self.timers = SyncTimerAdmin(self._thread, client.timers)
        self.dead_letters = SyncDeadLetterAdmin(self._thread, client.dead_letters)

    cluster_info = blocking(AdminClient.cluster_info)
    masters = blocking(AdminClient.masters)
    topics = blocking(AdminClient.topics)
    create_topic = blocking(AdminClient.create_topic)
    set_topic_permission = blocking(AdminClient.set_topic_permission)
    delete_topic = blocking(AdminClient.delete_topic)
    topic_stats = blocking(AdminClient.topic_stats)
    topic_route = blocking(AdminClient.topic_route)
    queue_entries = blocking(AdminClient.queue_entries)
