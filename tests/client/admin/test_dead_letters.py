"""Dead letters: list, count, resend."""

from typing import Any

import pytest
from harness.dead_letters import GROUP, TOPIC, make_letters, stored_keys

import congreve
from congreve.client import AdminClient, Message, SyncAdminClient, SyncProducer
from congreve.client.admin.dead_letters import REJECTED, LetterPosition
from congreve.client.admin.one_send import send
from congreve.client.admin.resent import ResentJournal
from congreve.client.errors import InvalidSettingError, ResendConflictError, RouteNotFoundError
from congreve.client.outgoing import prepare
from congreve.records.message.topics import dlq_topic, retry_topic
from congreve.remoting.messages.bodies import SubscriptionGroupConfig
from congreve.remoting.messages.codes import RequestCode, ResponseCode
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.messages.headers import ConsumerSendMsgBackRequestHeader


async def test_letters_are_listed_newest_first_and_counted(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin:
        await make_letters(admin, 300)
        letters = await admin.dead_letters.newest(GROUP, count=40)
        assert [letter.message.keys for letter in letters] == [
            str(number) for number in range(299, 259, -1)
        ]
        assert {letter.topic for letter in letters} == {TOPIC}
        assert not any(letter.is_resent for letter in letters)
        assert await admin.dead_letters.get(GROUP, letters[3].position) is not None
        counts = await admin.dead_letters.count(GROUP)
        (row,) = counts.rows
        assert (row.topic, row.reason, row.age, row.count, row.resent) == (
            *(TOPIC, REJECTED, "1 h"),
            *(300, 0),
        )
        assert counts.is_complete
        partly = await admin.dead_letters.count(GROUP, scan_max=100)
        assert (partly.scanned, partly.is_complete) == (100, False)
        backlog = await admin.dead_letters.groups()
        assert [(one.group, one.count) for one in backlog] == [(GROUP, 300)]


async def test_letters_are_selected_by_the_time_at_which_they_were_stored(
    node: congreve.Node,
) -> None:
    async with AdminClient(node.address) as admin:
        await make_letters(admin, 3)
        (last,) = await admin.dead_letters.newest(GROUP, count=1)
        after = last.dead_ms + 1
        assert not await admin.dead_letters.newest(GROUP, begin_ms=after)
        assert len(await admin.dead_letters.newest(GROUP, end_ms=after)) == 3
        report = await admin.dead_letters.resend(GROUP, begin_ms=after)
        assert report.sent == 0
        with pytest.raises(InvalidSettingError, match="rate is 0"):
            await admin.dead_letters.resend(GROUP, rate=0)
        with pytest.raises(RouteNotFoundError):
            await admin.dead_letters.newest("unknown")


async def test_a_repeated_resend_sends_no_letter_twice(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin:
        await make_letters(admin, 5_000)
        chosen = [LetterPosition("broker-a", 0, offset) for offset in (7, 8, 4_000)]
        name = (await admin.dead_letters.newest(GROUP, count=1))[0].position.broker_name
        chosen = [one._replace(broker_name=name) for one in chosen]
        report = await admin.dead_letters.resend(GROUP, positions=chosen)
        assert (report.sent, report.already_sent) == (3, 0)
        report = await admin.dead_letters.resend(GROUP, rate=100_000)
        assert (report.sent, report.already_sent) == (4_997, 3)
    async with AdminClient(node.address) as other:
        report = await other.dead_letters.resend(GROUP)
        assert (report.sent, report.already_sent) == (0, 5_000)
        assert await stored_keys(other) == list(range(5_000))
        (row,) = (await other.dead_letters.count(GROUP)).rows
        assert row.resent == 5_000


async def test_large_letters_are_resent_and_an_unknown_topic_is_an_error(
    node: congreve.Node,
) -> None:
    async with AdminClient(node.address) as admin:
        await make_letters(admin, 3, size=300_000)
        assert (await admin.dead_letters.resend(GROUP)).sent == 3
        assert await stored_keys(admin) == [0, 1, 2]
        await make_letters(admin, 2, topic="nowhere")
        report = await admin.dead_letters.resend(GROUP)
        assert (report.sent, report.already_sent, report.in_doubt) == (0, 3, 0)
        assert [failure.queue_offset for failure in report.failures] == [3, 4]
        assert "nowhere" in report.failures[0].reason
        # A refused letter may be sent again, here as an edited copy.
        report = await admin.dead_letters.resend(GROUP, edit=_to_orders)
        assert report.sent == 2


async def test_letters_go_to_a_group_in_batches_or_one_by_one(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin, _NoBatches(node.address) as alone:
        await make_letters(admin, 40)
        chosen = [one.position for one in await admin.dead_letters.newest(GROUP, count=20)]
        report = await alone.dead_letters.resend(GROUP, to_group=True, positions=chosen)
        assert (report.sent, alone.refused) == (20, 1)
        # A group without retries gets them, too.
        group = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=0)
        for address in (await admin.masters("DefaultCluster")).values():
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await admin.demand(address, code, body=group.encode())
        report = await admin.dead_letters.resend(GROUP, to_group=True)
        assert (report.sent, report.already_sent) == (20, 20)
        assert await stored_keys(admin, retry_topic(GROUP)) == list(range(40))
        assert (await admin.dead_letters.groups())[0].count == 40


async def test_a_letter_without_its_topic_is_refused(node: congreve.Node) -> None:
    async with AdminClient(node.address) as admin:
        await make_letters(admin, 1)
        message = Message(topic=dlq_topic(GROUP), body=b"x")
        (address,) = (await admin.masters("DefaultCluster")).values()
        await send(admin, address, 0, prepare(message, "0" * 32, compress_from=1 << 20))
        report = await admin.dead_letters.resend(GROUP)
        assert (report.sent, [one.queue_offset for one in report.failures]) == (1, [1])
        assert "RETRY_TOPIC" in report.failures[0].reason
        assert (await admin.dead_letters.resend(GROUP, edit=_to_orders)).sent == 1


class _NoBatches(AdminClient):
    """A client whose broker refuses each batch as illegal, as some versions do for retry topics."""

    refused = 0

    async def ask(self, address: str, code: int, *args: Any, **kwargs: Any) -> RemotingCommand:
        if code == RequestCode.SEND_BATCH_MESSAGE:
            self.refused += 1
            return RemotingCommand(code=ResponseCode.MESSAGE_ILLEGAL, remark="a batch")
        return await super().ask(address, code, *args, **kwargs)


def _to_orders(message: Message) -> Message:
    message.topic = TOPIC
    return message


async def test_a_second_process_that_resends_is_refused(node: congreve.Node) -> None:
    async with AdminClient(node.address, timeout_s=1.0) as admin:
        await make_letters(admin, 10)
        (letter,) = await admin.dead_letters.newest(GROUP, count=1)
        (address,) = (await admin.masters("DefaultCluster")).values()
        first, second = (
            ResentJournal(admin, GROUP, letter.position.broker_name, address) for _ in range(2)
        )
        await first.create()
        await second.read()
        begun = await first.begin(0, [(1, 3)], False, 0)
        with pytest.raises(ResendConflictError):
            await second.begin(0, [(4, 4)], False, 0)
        await first.end(begun, [(1, 2)])
        await second.begin(0, [(3, 4)], False, 0)
        assert [second.is_resent(0, offset) for offset in range(5)] == [
            *(False, True, True),
            *(False, False),
        ]


def test_a_letter_is_resent_only_to_its_own_group(node: congreve.Node) -> None:
    with SyncAdminClient(node.address) as admin:
        admin.create_topic(TOPIC, queues=1)
        with SyncProducer(node.address, group="p") as producer:
            producer.send(Message(topic=TOPIC, body=b"bad", tags="t", keys="1"))
        with node.consumer(GROUP, topics={TOPIC: "*"}) as consumer:
            (message,) = consumer.poll()
            header = ConsumerSendMsgBackRequestHeader(
                offset=message.physical_offset, group=GROUP, delay_level=-1
            )
            admin._thread.run(
                admin._thread.client.demand(
                    next(iter(admin.masters("DefaultCluster").values())),
                    RequestCode.CONSUMER_SEND_MSG_BACK,
                    header.fields(),
                )
            )
            (letter,) = admin.dead_letters.newest(GROUP)
            assert (letter.topic, letter.reason, letter.message.keys) == (TOPIC, REJECTED, "1")
            assert admin.dead_letters.resend(GROUP, to_group=True).sent == 1
            (again,) = consumer.poll()
        assert (again.topic, again.body, again.tags) == (TOPIC, b"bad", "t")
        assert sum(queue.max_offset for queue in admin.topic_stats(TOPIC)) == 1


async def test_a_topic_that_the_sender_may_not_write_to_is_said_by_the_administrator(
    node: congreve.Node,
) -> None:
    async with AdminClient(node.address) as admin:
        await make_letters(admin, 2)
        await make_letters(admin, 3, topic="secret", RETRY_TOPIC_UNCHECKED="true")
        for to_group in (False, True):
            report = await admin.dead_letters.resend(GROUP, to_group=to_group)
            assert [failure.queue_offset for failure in report.failures] == [2, 3, 4]
            assert "RETRY_TOPIC=secret" in report.failures[0].reason
        report = await admin.dead_letters.resend(GROUP, topic=TOPIC)
        assert (report.sent, report.already_sent) == (3, 2)
        assert len(await stored_keys(admin)) == 5
