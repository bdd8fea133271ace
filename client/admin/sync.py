"""Administration by programs without an event loop (RocketMQ: DefaultMQAdminExt)."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from congreve.client.admin.client import AdminClient
from congreve.client.admin.dead_letters import DeadLetterAdmin
from congreve.client.admin.groups import GroupAdmin
from congreve.client.admin.timers import TimerAdmin
from congreve.client.admin.traces import TraceAdmin
from congreve.client.transport.loop_thread import LoopThread, SyncClient, blocking

Part = TypeVar("Part")
P = ParamSpec("P")
T = TypeVar("T")


class SyncPart(Generic[Part]):
    """A part of an AdminClient, whose coroutines run in the client's thread."""

    def __init__(self, thread: LoopThread[AdminClient], part: Part) -> None:
        self._thread = thread
        self._part = part


def _blocking(
    method: Callable[Concatenate[Part, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncPart[Part], P], T]:
    """The method of a sync part that runs a coroutine method of the part and waits for it."""

    @wraps(method)
    def call(self: SyncPart[Part], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._part, *args, **kwargs))

    return call


class SyncGroupAdmin(SyncPart[GroupAdmin]):
    """GroupAdmin without an event loop."""

    names = _blocking(GroupAdmin.names)
    summaries = _blocking(GroupAdmin.summaries)
    lag = _blocking(GroupAdmin.lag)
    members = _blocking(GroupAdmin.members)
    reset = _blocking(GroupAdmin.reset)
    delete = _blocking(GroupAdmin.delete)
    retry_limit = _blocking(GroupAdmin.retry_limit)


class SyncDeadLetterAdmin(SyncPart[DeadLetterAdmin]):
    """DeadLetterAdmin without an event loop."""

    groups = _blocking(DeadLetterAdmin.groups)
    newest = _blocking(DeadLetterAdmin.newest)
    get = _blocking(DeadLetterAdmin.get)
    count = _blocking(DeadLetterAdmin.count)
    resend = _blocking(DeadLetterAdmin.resend)


class SyncTimerAdmin(SyncPart[TimerAdmin]):
    """TimerAdmin without an event loop."""

    count_by_hour = _blocking(TimerAdmin.count_by_hour)
    upcoming = _blocking(TimerAdmin.upcoming)
    recall = _blocking(TimerAdmin.recall)
    recall_sent = _blocking(TimerAdmin.recall_sent)


class SyncTraceAdmin(SyncPart[TraceAdmin]):
    """TraceAdmin without an event loop."""

    of_message = _blocking(TraceAdmin.of_message)


class SyncAdminClient(SyncClient[AdminClient]):
    """An AdminClient for programs without an event loop.

    ``with SyncAdminClient("host:9876") as admin``; arguments, results and errors are those of
    AdminClient. (RocketMQ: DefaultMQAdminExt.)
    """

    def __init__(self, namesrv: str, **connection: Any) -> None:
        super().__init__("admin", lambda: AdminClient(namesrv, **connection))
        client = self._thread.client
        self.groups = SyncGroupAdmin(self._thread, client.groups)
        self.traces = SyncTraceAdmin(self._thread, client.traces)
        self.timers = SyncTimerAdmin(self._thread, client.timers)
        self.dead_letters = SyncDeadLetterAdmin(self._thread, client.dead_letters)

    cluster_info = blocking(AdminClient.cluster_info)
    masters = blocking(AdminClient.masters)
    topics = blocking(AdminClient.topics)
    create_topic = blocking(AdminClient.create_topic)
    delete_topic = blocking(AdminClient.delete_topic)
    topic_stats = blocking(AdminClient.topic_stats)
    topic_route = blocking(AdminClient.topic_route)
    queue_entries = blocking(AdminClient.queue_entries)
