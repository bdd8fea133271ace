"""Half messages and their ends in compiled code against the Python handlers, on one broker.

The compiled code is that of the event loop, or that of a lane.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness.wire import Wire

from congreve.broker.broker import Broker
from congreve.records.message.message import Record
from congreve.records.record import decode_record, encode_record
from congreve.remoting.lanes.transport import LaneTransport
from congreve.remoting.messages.codes import SerializeType
from congreve.remoting.messages.command import RemotingCommand
from congreve.remoting.transport.client import RemotingClient

from ..serving.test_fastpath import CREATE, SHORT, Ports, config_of
from ..serving.test_lanes import create, running

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
PLAIN = "UNIQ_KEY\x01u\x02TAGS\x01a\x02WAIT\x01true\x02TRAN_MSG\x01true\x02PGROUP\x01P"
HALVES = {
    "as clients send it": PLAIN,
    "keys and a body that is empty": PLAIN + "\x02KEYS\x01k 1",
    "TRUE": PLAIN.replace("true", "TRUE"),
    "no transaction at all": "TAGS\x01a",
    "TRAN_MSG of no value": PLAIN.replace("TRAN_MSG\x01true", "TRAN_MSG\x01no"),
    "no producer group": "TRAN_MSG\x01true",
    "a target of its own": PLAIN + "\x02REAL_TOPIC\x01elsewhere\x02REAL_QID\x017",
    "a copy's properties": PLAIN + "\x02TRANSACTION_CHECK_TIMES\x013",
    "a delay": PLAIN + "\x02DELAY\x012",
    "one that does not wait": PLAIN.replace("WAIT\x01true", "WAIT\x01false"),
    "too many properties": PLAIN + "\x02k\x01" + "v" * 32_650,
}
ENDS: dict[str, dict[str, str | None]] = {
    "commit": {},
    "rollback": {"commitOrRollback": "12"},
    "from a check": {"fromTransactionCheck": "true"},
    "another group": {"producerGroup": "Q"},
    "a longer group": {"producerGroup": "PP"},
    "another half offset": {"tranStateTableOffset": "77"},
    "a negative half offset": {"tranStateTableOffset": "-1"},
    "no half message there": {"commitLogOffset": "1"},
    "after the log": {"commitLogOffset": "9000000000000000000"},
    "before the log": {"commitLogOffset": "-9"},
    "no group": {"producerGroup": None},
    "no message id": {"msgId": None},
    "no number": {"commitLogOffset": "seven"},
}


def end_fields(half: Mapping[str, str]) -> dict[str, str]:
    """The fields that commit a half message, from those of the answer to it."""
    return {
        "producerGroup": "P",
        "tranStateTableOffset": half["queueOffset"],
        "commitLogOffset": str(int(half["msgId"][16:], 16)),
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "u",
    }


class TransactionPorts(Ports):
    """Sends requests of transactions to both ports."""

    async def half(self, properties: str = PLAIN, body: bytes = b"body", **how) -> RemotingCommand:
        fields = {**SHORT, "i": properties, "f": "4" if "TRAN_MSG" in properties else "0"}
        return await self.ask(310, fields, body, **how)

    async def end(self, half: RemotingCommand, changed=(), **how) -> RemotingCommand:
        fields = end_fields(half.ext_fields) | dict(changed)
        return await self.ask(37, {k: v for k, v in fields.items() if v is not None}, **how)

    def appended(self, start: int) -> list[tuple[object, ...]]:
        """stored(), with op records replaced by whether they name the newest half message."""
        found = []
        for one in self.stored(start):
            if one[0] == "RMQ_SYS_TRANS_OP_HALF_TOPIC":
                newest = self.broker.store.max_offset(HALF_TOPIC, 0) - 1
                found.append((one[0], int(one[1]) == newest, one[2], one[4]))
            else:
                found.append(one)
        return found


async def opened(broker: Broker) -> tuple[TransactionPorts, RemotingClient]:
    client = RemotingClient()
    ports = TransactionPorts(broker, client)
    assert (await ports.ask(17, CREATE)).code == 0
    # The first transaction creates the queues, which only the Python handlers do.
    assert (await ports.end(await ports.half())).code == 0
    return ports, client


async def test_a_half_message_forged_inside_a_body_is_not_committed(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        ports, client = await opened(broker)
        half = await ports.half()
        at = broker.store.log.max_offset + 88
        forged = Record(
            topic=HALF_TOPIC,
            body=b"forged",
            physical_offset=at,
            queue_offset=int(half.ext_fields["queueOffset"]),
            properties={"PGROUP": "P", "REAL_TOPIC": "T", "REAL_QID": "0", "TRAN_MSG": "true"},
        )
        await ports.ask(310, SHORT, encode_record(forged))
        end = broker.store.log.max_offset
        for vip in (True, False):
            answer = await ports.end(half, {"commitLogOffset": str(at)}, vip=vip)
            assert "no half message at commitLogOffset" in (answer.remark or "")
        assert broker.store.log.max_offset == end
        await client.close()


def comparable(answer: RemotingCommand) -> tuple[object, ...]:
    """The parts of an answer that must be the same on both ports."""
    fields = {k: v for k, v in answer.ext_fields.items() if k not in ("msgId", "queueOffset")}
    return answer.code, re.sub(r"\d+", "N", answer.remark or ""), fields


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_compiled_code_and_python_store_equal_half_messages(
    flush: str, serialize_type: SerializeType, tmp_path: Path
) -> None:
    async with Broker(config_of(tmp_path, flush)) as broker:
        ports, client = await opened(broker)
        for name, properties in HALVES.items():
            body = b"" if "empty" in name else b"body"
            outcomes = []
            for vip in (True, False):
                start = broker.store.log.max_offset
                how = {"vip": vip, "serialize_type": serialize_type}
                half = await ports.half(properties, body, **how)
                outcomes.append((comparable(half), ports.appended(start)))
            assert outcomes[0] == outcomes[1], name
        assert len(broker.managers.transactions.service.open_offsets()) > 8
        await client.close()


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_compiled_code_and_python_end_transactions_alike(
    serialize_type: SerializeType, tmp_path: Path
) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        ports, client = await opened(broker)
        for name, changed in ENDS.items():
            outcomes = []
            for vip in (True, False):
                how = {"vip": vip, "serialize_type": serialize_type}
                half = await ports.half(**how)
                start = broker.store.log.max_offset
                first = comparable(await ports.end(half, changed, **how))
                once = ports.appended(start)
                second = comparable(await ports.end(half, changed, **how))
                outcomes.append((first, once, second, ports.appended(start)))
            assert outcomes[0] == outcomes[1], name
            assert outcomes[0][1] == outcomes[0][3], "a second end stored something"
        await client.close()


async def test_python_handles_commits_of_delayed_and_copied_half_messages(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        ports, client = await opened(broker)
        for more in ("\x02DELAY\x012", "\x02TRANSACTION_CHECK_TIMES\x013"):
            half = await ports.half(PLAIN + more)
            assert (await ports.end(half)).code == 0
            assert (await ports.end(half)).code == 1
        assert broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 1
        assert broker.store.max_offset("T", 1) == 2
        await client.close()


async def test_transactions_cross_segments_and_queue_files(tmp_path: Path) -> None:
    """Small files, so that final messages and op records cross every file boundary."""
    config = config_of(tmp_path)
    config.store.mapped_file_size_commit_log = 16 << 10
    config.store.mapped_file_size_consume_queue = 20 * 10
    async with Broker(config) as broker:
        ports, client = await opened(broker)
        for number in range(300):
            half = await ports.half(PLAIN, b"%d|" % number * (1 + number * 7 % 90))
            assert (await ports.end(half)).code == 0
        assert len(broker.store.log.segments) > 10
        queue = broker.store.queues.get("T", 1)
        bodies = [decode_record(broker.store.read(queue[i][0])).body for i in range(1, queue.max)]
        assert [int(body.split(b"|")[0]) for body in bodies] == list(range(300))
        assert broker.store.max_offset("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 301
        assert broker.managers.transactions.service.open_offsets() == []
        await client.close()


async def test_a_setting_that_refuses_half_messages_takes_effect_at_once(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        ports, client = await opened(broker)
        half = await ports.half()
        await ports.ask(25, {}, b"rejectTransactionMessage=true")
        assert (await ports.half()).code == 16
        assert (await ports.end(half)).code == 0
        await ports.ask(25, {}, b"rejectTransactionMessage=false")
        assert (await ports.half()).code == 0
        await client.close()


async def test_compiled_code_handles_ordinary_transactions_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        ports, client = await opened(broker)
        # A lane finds the queues after its first request.
        assert (await ports.end(await ports.half())).code == 0

        def never(*_: object) -> None:
            raise AssertionError("the Python service was asked")

        for name in ("prepare", "commit", "rollback"):
            monkeypatch.setattr(broker.managers.transactions.service, name, never)
        monkeypatch.setattr(LaneTransport, "frame_arrived", never)
        for how in ("8", "12"):
            half = await ports.half()
            assert (await ports.end(half, {"commitOrRollback": how})).code == 0
        await client.close()


def test_a_lane_and_a_handler_that_end_the_same_transaction_end_it_once(tmp_path: Path) -> None:
    rounds = 1500
    with running(config_of(tmp_path, lanes=1)) as (broker, _):
        create(broker, "T")
        host, port = broker.address.split(":")
        vip_address = f"{host}:{int(port) - 2}"
        with Wire(broker.address) as wire, Wire(vip_address) as vip:
            for _ in range(rounds):
                half = wire.call(310, SHORT | {"i": PLAIN, "f": "4"}, b"x")
                end = end_fields(half.fields)
                for each in (vip, wire):
                    each.send(37, end)
                assert sorted(each.receive().code for each in (vip, wire)) == [0, 1]
        assert broker.store.max_offset("T", 1) == rounds
        assert broker.store.max_offset("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == rounds
        assert broker.managers.transactions.service.open_offsets() == []
