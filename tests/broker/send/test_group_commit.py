"""No send succeeds before its message is on disk."""

import asyncio
import errno

from congreve.broker.send.checks import put_code
from congreve.broker.send.commit_delay import GATHER_S, HURRIED_RELEASES_MAX
from congreve.broker.send.group_commit import GroupCommit
from congreve.broker.send.recode import recode
from congreve.broker.send.write_through import (
    SENDS_AFTER_STANDSTILL,
    SENDS_ALONE,
    STANDSTILL_MEAN_OF,
    STANDSTILL_S,
)
from congreve.engine.config import StoreConfig
from congreve.engine.results import PutStatus
from congreve.remoting.messages.codes import ResponseCode
from congreve.remoting.messages.command import RemotingCommand

PATIENT = StoreConfig(sync_flush_timeout=60_000)


def answers(*opaques: int) -> bytes:
    return b"".join(
        RemotingCommand(code=i, opaque=i).reply(0, None, {"msgId": f"{i}"}).encode()
        for i in opaques
    )


def started(group_commit: GroupCommit) -> GroupCommit:
    group_commit.start()
    return group_commit


async def test_responses_wait_for_the_disk_and_are_sent_together(connection, fake_backend, turn):
    group_commit = started(GroupCommit(fake_backend, PATIENT))
    group_commit.send_when_durable(connection, answers(1), 100)
    group_commit.send_when_durable(connection, answers(2, 3), 200)
    group_commit.send_when_durable(connection, answers(4), 300)
    assert connection.written == []
    assert fake_backend.requested == [100, 200, 300]
    fake_backend.becomes_durable(250)
    await asyncio.sleep(0.05)
    assert len(connection.written) == 1
    assert [a.opaque for a in connection.answers] == [1, 2, 3]
    assert len(group_commit) == 1
    group_commit.stop()


async def test_durable_messages_are_answered_without_waiting(connection, fake_backend):
    fake_backend.durable_offset = 500
    group_commit = started(GroupCommit(fake_backend, PATIENT))
    group_commit.send_when_durable(connection, answers(1), 500)
    assert [a.opaque for a in connection.answers] == [1]
    group_commit.stop()


async def test_a_lone_sender_is_answered_at_once(
    connection, another_connection, fake_backend, turn
):
    group_commit = started(GroupCommit(fake_backend, PATIENT))
    fake_backend.writes_through = True
    upto = 0

    async def sends(sender) -> bool:
        """Whether the answer arrived before the loop's next turn."""
        nonlocal upto
        upto += 100
        before = len(sender.written)
        group_commit.send_when_durable(sender, answers(upto), upto)
        at_once = len(sender.written) > before
        fake_backend.becomes_durable(upto)
        await turn()
        while len(sender.written) == before:
            await asyncio.sleep(0.001)
        return at_once

    assert [await sends(connection) for _ in range(SENDS_ALONE)] == [False] * SENDS_ALONE
    assert await sends(connection)
    assert not await sends(another_connection)
    assert not await sends(connection), "there is another sender now"
    group_commit.stop()


async def test_the_event_loop_is_blocked_at_most_once_for_a_lone_sender(connection, fake_backend):
    now = [0.0]
    group_commit = started(GroupCommit(fake_backend, PATIENT, clock=lambda: now[0]))
    fake_backend.writes_through = True

    def slowly(upto: int) -> bool:
        now[0] += 2 * STANDSTILL_MEAN_OF * STANDSTILL_S
        fake_backend.durable_offset = upto
        return True

    fake_backend.write_through = slowly
    at_once = 0
    for upto in range(1, SENDS_AFTER_STANDSTILL + SENDS_ALONE):
        before = len(connection.written)
        group_commit.send_when_durable(connection, answers(upto), upto)
        at_once += len(connection.written) > before
        fake_backend.durable_offset = upto
        group_commit.release()
    assert at_once == 1
    group_commit.stop()


async def test_a_sender_that_was_just_answered_shares_the_next_write(
    connection, another_connection, fake_backend, turn
):
    group_commit = started(GroupCommit(fake_backend, PATIENT, clock=lambda: 0.0))
    group_commit.send_when_durable(connection, answers(1), 100)
    group_commit.send_when_durable(another_connection, answers(2), 200)
    fake_backend.durable_offset = 200
    group_commit.release()
    group_commit.send_when_durable(connection, answers(3), 300)
    await turn()
    assert fake_backend.requested[-1] == 200, "the other sender is expected to send"
    group_commit.send_when_durable(another_connection, answers(4), 400)
    assert fake_backend.requested[-1] == 400
    group_commit.stop()


async def test_a_sender_that_does_not_send_again_delays_the_others_only_briefly(
    connection, another_connection, fake_backend, turn
):
    now = [0.0]
    group_commit = started(GroupCommit(fake_backend, PATIENT, clock=lambda: now[0]))
    waited = []
    for upto in range(0, 1000 * HURRIED_RELEASES_MAX, 1000):
        group_commit.send_when_durable(connection, answers(1), upto + 100)
        group_commit.send_when_durable(another_connection, answers(2), upto + 200)
        fake_backend.durable_offset = upto + 200
        group_commit.release()
        group_commit.send_when_durable(connection, answers(3), upto + 300)
        waited.append(fake_backend.requested[-1] < upto + 300)
        now[0] += GATHER_S
        await turn()
        assert fake_backend.requested[-1] == upto + 300
        fake_backend.durable_offset = upto + 300
        group_commit.release()
        now[0] += GATHER_S
        await turn()
    assert 1 <= sum(waited) <= 5
    assert sum(waited[HURRIED_RELEASES_MAX // 2 :]) <= 1, "less and less often"
    group_commit.stop()


async def test_the_loop_sleeps_neither_before_the_senders_come_nor_before_the_disk_is_done(
    connection, fake_backend, turn
):
    now = [0.0]
    looked = [0]

    def clock() -> float:
        looked[0] += 1
        return now[0]

    async def is_awake() -> bool:
        """Whether the loop polls: each of its turns reads the clock."""
        await turn()
        before = looked[0]
        await turn()
        return looked[0] > before

    group_commit = started(GroupCommit(fake_backend, PATIENT, clock=clock))
    group_commit.send_when_durable(connection, answers(1), 100)
    assert not await is_awake(), "the time of the first write is unknown"
    fake_backend.durable_offset = 100
    group_commit.release()
    assert await is_awake()
    now[0] += 0.9 * GATHER_S
    group_commit.send_when_durable(connection, answers(2), 200)
    now[0] += 0.9 * GATHER_S
    assert await is_awake()
    now[0] += 0.2 * GATHER_S
    assert not await is_awake(), "the loop does not poll for so slow a disk"
    group_commit.stop()


async def test_a_failed_disk_turns_every_success_into_an_error(connection, fake_backend):
    group_commit = started(GroupCommit(fake_backend, PATIENT))
    group_commit.send_when_durable(connection, answers(1, 2), 100)
    fake_backend.fails(errno.EIO)
    await asyncio.sleep(0.05)
    group_commit.send_when_durable(connection, answers(3), 200)
    codes = {a.opaque: a.code for a in connection.answers}
    assert codes == dict.fromkeys((1, 2, 3), ResponseCode.SERVICE_NOT_AVAILABLE)
    assert "errno 5" in connection.answers[0].remark
    group_commit.stop()


async def test_a_flush_timeout_has_its_own_code(connection, fake_backend):
    group_commit = started(GroupCommit(fake_backend, StoreConfig(sync_flush_timeout=20)))
    group_commit.send_when_durable(connection, answers(1), 100)
    await asyncio.sleep(0.1)
    (answer,) = connection.answers
    assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert answer.ext_fields == {"msgId": "1"}
    group_commit.stop()


async def test_a_closed_connection_does_not_delay_the_others(
    connection, another_connection, fake_backend
):
    group_commit = started(GroupCommit(fake_backend, PATIENT))
    group_commit.send_when_durable(connection, answers(1), 100)
    group_commit.send_when_durable(another_connection, answers(2), 200)
    connection.closed = True
    fake_backend.becomes_durable(200)
    await asyncio.sleep(0.05)
    assert connection.written == []
    assert [a.opaque for a in another_connection.answers] == [2]
    group_commit.stop()


def test_an_error_response_is_not_changed_by_group_commit():
    refused = RemotingCommand(code=10, opaque=7).reply(ResponseCode.NO_PERMISSION, "no").encode()
    assert recode(refused, ResponseCode.FLUSH_DISK_TIMEOUT, "late") == refused


def test_a_store_without_a_free_buffer_is_answered_like_the_reference() -> None:
    """SendMessageProcessor: CREATE_MAPEDFILE_FAILED is SYSTEM_ERROR, clients try another broker."""
    assert put_code(PutStatus.CREATE_MAPEDFILE_FAILED) is ResponseCode.SYSTEM_ERROR
