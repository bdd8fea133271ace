"""Which slaves have a master's topics and groups, and the notification of slaves of changes."""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

from congreve.broker.metadata.metadata import Metadata
from congreve.engine.errors import StoreError
from congreve.remoting.messages.bodies import TableChanges, TopicConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import AwaitTableChangeRequestHeader
from congreve.remoting.transport.connection import Connection
from congreve.remoting.transport.dispatcher import Handler

HOLD_S = 0.8
"""How long a request waits for a change; slaves copy consumer offsets as often, in seconds."""
COPY_S = 3.0
"""How long a change waits for the members that must have it, in seconds."""
LOOK_S = 0.05
"""How soon a change that waits sees another in-sync set, in seconds."""
NUMBERS_MAX = 64
"""Numbers that are noted; of more, those that are no members' are forgotten, the oldest first."""
DELETIONS_MAX = 1_000
CHANGES_MAX = 1_000
"""Changed topics that an answer may name; a slave that lacks more copies the tables."""


class _Held(NamedTuple):
    """A request that waits for a change."""

    request: RemotingCommand
    connection: Connection
    has: int
    timer: asyncio.TimerHandle


class TableCopies:
    """Numbers the changes of topics and groups at a master, for the slaves that copy them.

    A slave's request names the change up to which it has the tables on its disk. The answer names
    the newest change, and waits until there is another one. `required` returns the members without
    which a change does not count as saved, None if no change may count: this member is not the
    master any more. `log_end` returns the end of the log. RocketMQ has no counterpart.
    """

    def __init__(
        self,
        metadata: Metadata,
        required: Callable[[], frozenset[int] | None],
        log_end: Callable[[], int],
        members: Callable[[], frozenset[int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metadata = metadata
        self._required = required
        self._log_end = log_end
        self._members = members
        self._clock = clock
        self._history = uuid.uuid4().hex  # numbers of another master, or of an earlier start
        self._newest = 0
        self._acknowledged = 0
        self._copied: dict[int, int] = {}  # by number, the one that asked last at the end
        self._waiting: list[tuple[int, float]] = []  # changes that members must have, since when
        self._deleted: dict[str, tuple[int, int]] = {}  # topic: number, end of the log
        self._changed: dict[str, int] = {}  # topic: number of its last change, in their order
        self._whole = 0  # a slave that lacks this change copies the tables as a whole
        self._reported = asyncio.Event()
        self._held: dict[Connection, _Held] = {}
        self._closed = False

    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by request code."""
        return {RequestCode.AWAIT_TABLE_CHANGE: self.await_change}

    def start(self) -> None:
        """Follow the tables, whose queues and files are those of this master from now on."""
        self._metadata.topics.listen(self._topic_changed)
        self._metadata.groups.listen(lambda group: self._note(whole=True))
        self._metadata.request_modes.listen(lambda: self._note(whole=True))

    def close(self) -> None:
        """Let nothing wait any more. Idempotent."""
        self._closed = True
        self._reported.set()
        for held in list(self._held.values()):
            held.timer.cancel()
        self._held.clear()

    async def copied(self) -> None:
        """Return when all required members have the changes so far on their disks.

        Raises StoreError if that takes more than COPY_S, or if this member is not the master.
        """
        waiting = self._newest, self._clock()
        self._waiting.append(waiting)
        try:
            await self._wait(*waiting)
        finally:
            self._waiting.remove(waiting)
        self._acknowledged = max(self._acknowledged, waiting[0])

    async def _wait(self, number: int, since: float) -> None:
        while not self._closed and (lacking := self._lacking(number)):
            if self._clock() - since > COPY_S:
                raise StoreError(
                    f"the change is on this master's disk, but members {sorted(lacking)} have not"
                    f" copied it within {COPY_S:g} s: it may be lost with this master"
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._reported.wait()

    def _lacking(self, number: int) -> set[int]:
        required = self._required()
        if required is None:
            raise StoreError("this member is not the master any more: send to the new one")
        return {member for member in required if self._copied.get(member, 0) < number}

    def lacks_since(self, member: int) -> float | None:
        """Since when a member lacks a change that waits for it or is acknowledged; None: it has
        all."""
        has = self._copied.get(member, 0)
        waited = [since for number, since in self._waiting if number > has]
        if waited:
            return min(waited)
        return self._clock() if has < self._acknowledged else None

    def await_change(
        self, request: RemotingCommand, connection: Connection
    ) -> RemotingCommand | None:
        """Note what a slave has; answer when there is more, at the latest after HOLD_S."""
        header = AwaitTableChangeRequestHeader.read(request)
        history, _, number = header.copied.rpartition(":")
        known = history == self._history and number.isdecimal()
        has = min(int(number), self._newest) if known else 0
        self._note_copied(header.member, has)
        self._release(connection)
        if not known or has < self._newest or self._closed:
            return self._answer(request, has if known else None)
        timer = asyncio.get_running_loop().call_later(HOLD_S, self._release, connection)
        self._held[connection] = _Held(request, connection, has, timer)
        return None

    def _note_copied(self, member: int, has: int) -> None:
        """Any client may ask, with any number: a slave does before it is known to be a member."""
        self._copied[member] = max(has, self._copied.pop(member, 0))
        if len(self._copied) > NUMBERS_MAX:
            strangers = self._copied.keys() - self._members()
            if strangers:
                del self._copied[next(number for number in self._copied if number in strangers)]
        self._reported.set()
        self._reported = asyncio.Event()

    def _release(self, connection: Connection) -> None:
        held = self._held.pop(connection, None)
        if held is not None:
            held.timer.cancel()
            connection.send(self._answer(held.request, held.has))

    def _answer(self, request: RemotingCommand, has: int | None) -> RemotingCommand:
        """What is new for a slave with the changes up to `has`; None: it has none of them."""
        body = TableChanges(
            newest=f"{self._history}:{self._newest}",
            deleted_topics={
                topic: log_end
                for topic, (number, log_end) in self._deleted.items()
                if number > (has or 0)
            },
        )
        if has is not None and has >= self._whole:
            topics = self._metadata.topics
            newer = takewhile(lambda each: each[1] > has, reversed(self._changed.items()))
            body.topics = {topic: topics.table[topic] for topic, _ in newer}
            body.topics_version = topics.data_version
        return request.reply(ResponseCode.SUCCESS, body=body.encode())

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        self._changed.pop(topic, None)
        if config is None:
            # No sender has the topic any more, so that later records belong to the next one.
            self._deleted.pop(topic, None)
            self._deleted[topic] = self._newest + 1, self._log_end()
            if len(self._deleted) > DELETIONS_MAX:
                del self._deleted[next(iter(self._deleted))]
        else:
            self._changed[topic] = self._newest + 1
            if len(self._changed) > CHANGES_MAX:
                self._whole = self._changed.pop(next(iter(self._changed)))
        self._note(whole=config is None)

    def _note(self, *, whole: bool) -> None:
        self._newest += 1
        if whole:
            self._whole = self._newest
            self._changed.clear()
        for connection in list(self._held):
            self._release(connection)
