"""A master's changes of topics and groups wait for the members that must have them."""

import asyncio
import sys
from collections.abc import Iterator

import pytest
from harness.eventually import eventually

from congreve.base.clock import Clock
from congreve.broker.config import BrokerConfig
from congreve.broker.metadata.metadata import Metadata
from congreve.broker.replication.table_copies import (
    CHANGES_MAX,
    COPY_S,
    DELETIONS_MAX,
    NUMBERS_MAX,
    TableCopies,
)
from congreve.engine.errors import StoreError
from congreve.remoting.loop.pieces import Pieces
from congreve.remoting.messages.bodies import SubscriptionGroupConfig, TableChanges, TopicConfig
from congreve.remoting.messages.codes import RequestCode
from congreve.remoting.messages.command import RemotingCommand


class Peer:
    """The connection of a slave."""

    def __init__(self) -> None:
        self.sent: list[RemotingCommand] = []

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)


class Master:
    """The tables of a master whose in-sync set and clock the test sets."""

    def __init__(self) -> None:
        self.required: frozenset[int] | None = frozenset()
        self.members: frozenset[int] = frozenset()
        self.now = 0.0
        config = BrokerConfig()
        self.metadata = Metadata(config, Clock(), Pieces())
        self.copies = TableCopies(
            *(self.metadata, lambda: self.required, lambda: 77, lambda: self.members),
            clock=lambda: self.now,
        )
        self.copies.start()
        self.peer = Peer()

    def ask(self, copied: str, member: int = 2) -> TableChanges | None:
        """What a slave's request is answered with now."""
        fields = {"member": str(member), "copied": copied}
        request = RemotingCommand(code=RequestCode.AWAIT_TABLE_CHANGE, ext_fields=fields)
        answer = self.copies.await_change(request, self.peer)  # type: ignore[arg-type]
        return None if answer is None else TableChanges.decode(answer.body)

    def newest(self) -> str:
        """The newest change, as a slave learns it."""
        answer = self.ask("")
        assert answer is not None
        return answer.newest

    def create(self, topic: str) -> None:
        self.metadata.topics.update(TopicConfig(topic_name=topic))


@pytest.fixture
def master() -> Iterator[Master]:
    made = Master()
    yield made
    made.copies.close()


async def test_a_change_waits_until_all_required_members_have_it(master: Master) -> None:
    master.required = frozenset({2, 3})
    before = master.newest()
    master.create("T")
    change = asyncio.create_task(master.copies.copied())
    await asyncio.sleep(0)
    assert master.copies.lacks_since(2) == 0.0
    answer = master.ask(before)
    assert answer is not None
    master.ask(answer.newest, 3)
    master.ask(before)
    await asyncio.sleep(0.01)
    assert not change.done()
    assert master.ask(answer.newest) is None
    await change
    assert master.copies.lacks_since(2) is None
    master.now = 5.0
    assert master.copies.lacks_since(4) == 5.0, "it may not enter the set"


async def test_a_change_that_a_member_does_not_copy_fails(master: Master) -> None:
    master.required = frozenset({2})
    change = asyncio.create_task(master.copies.copied())
    await asyncio.sleep(0)
    master.now = COPY_S + 1
    with pytest.raises(StoreError, match=r"\[2\]"):
        await change
    change = asyncio.create_task(master.copies.copied())
    await asyncio.sleep(0)
    master.required = frozenset()  # the member has left the set
    await change
    master.required = None
    with pytest.raises(StoreError, match="not the master"):
        await master.copies.copied()


async def test_invented_numbers_take_no_members_place(master: Master) -> None:
    master.members = master.required = frozenset({2, 7000})
    master.ask("", 2)
    master.create("T")
    newest = master.newest()
    for number in range(1000, 2000):
        master.ask("", number)
    size = sys.getsizeof(master.copies._copied)
    master.ask(newest, 2)
    master.ask(newest, 7000)
    for number in range(2000, 5000):
        master.ask("", number)
    assert len(master.copies._copied) == NUMBERS_MAX
    assert sys.getsizeof(master.copies._copied) == size
    await master.copies.copied()
    assert master.copies.lacks_since(2) is master.copies.lacks_since(7000) is None


async def test_numbers_of_another_master_count_for_nothing(master: Master) -> None:
    other = Master()
    for _ in range(3):
        other.create("T")
    assert master.ask(other.newest()) is not None
    assert master.ask("x:99999999") is not None
    history = master.newest().partition(":")[0]
    assert master.ask(f"{history}:99999999") is None
    master.create("T")
    master.required = frozenset({2})
    change = asyncio.create_task(master.copies.copied())
    await asyncio.sleep(0.01)
    assert not change.done()
    change.cancel()


async def test_a_slave_without_news_is_answered_at_the_next_change(master: Master) -> None:
    assert master.ask(master.newest()) is None
    assert not master.peer.sent
    master.create("T")
    master.metadata.topics.delete("T")
    [answer] = master.peer.sent
    first = TableChanges.decode(answer.body)
    again = master.ask(first.newest)
    assert again is not None
    assert again.deleted_topics == {"T": 77}
    assert master.ask(again.newest) is None
    await eventually(lambda: len(master.peer.sent) == 2)
    nothing = TableChanges.decode(master.peer.sent[1].body)
    assert (nothing.newest, nothing.deleted_topics, nothing.topics) == (again.newest, {}, {})


async def test_an_answer_names_the_changed_topics(master: Master) -> None:
    before = master.newest()
    master.create("A")
    master.create("B")
    master.create("A")
    answer = master.ask(before)
    assert answer is not None
    assert answer.topics == {name: master.metadata.topics.table[name] for name in ("A", "B")}
    assert answer.topics_version == master.metadata.topics.data_version
    middle = answer.newest
    master.create("C")
    answer = master.ask(middle)
    assert answer is not None
    assert answer.topics is not None
    assert answer.topics.keys() == {"C"}
    for number in range(CHANGES_MAX):
        master.create(f"T{number}")
    answer = master.ask(middle)
    assert answer is not None
    assert answer.topics is None, "too many: it copies the tables"


async def test_a_slave_copies_the_tables_after_a_deletion_or_a_change_of_a_group(
    master: Master,
) -> None:
    for change in (
        lambda: master.metadata.topics.delete("T"),
        lambda: master.metadata.groups.update(SubscriptionGroupConfig(group_name="g")),
    ):
        master.create("T")
        before = master.newest()
        change()
        master.create("T2")
        answer = master.ask(before)
        assert answer is not None
        assert answer.topics is None
    answer = master.ask("x:1")
    assert answer is not None
    assert answer.topics is None, "it has nothing of this master"


async def test_old_deletions_are_forgotten(master: Master) -> None:
    for number in range(DELETIONS_MAX + 2):
        master.create(f"T{number}")
        master.metadata.topics.delete(f"T{number}")
    answer = master.ask("")
    assert answer is not None
    assert len(answer.deleted_topics) == DELETIONS_MAX
    assert "T0" not in answer.deleted_topics
