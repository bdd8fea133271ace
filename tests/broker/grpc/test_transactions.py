"""Transactions of gRPC clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from congreve.broker.grpc.codecs.codes import Code
from remoting.http2.built import needs_http2

from .clients import TRANSACTION, Client, open_telemetry
from .test_consuming import consuming
from .test_door import stored

pytestmark = needs_http2

COMMIT, ROLLBACK = 1, 2
CLIENT, SERVER_CHECK = 1, 2


def half(made: Client, body: bytes) -> Any:
    """The receipt of a half message."""
    answer = made.send(made.message("Trans", body, message_type=TRANSACTION))
    assert answer.status.code == Code.OK, answer
    return answer.entries[0]


def end(made: Client, receipt: Any, resolution: int, topic: str = "Trans", **changed: Any) -> int:
    """The code of the answer to the end of a transaction."""
    changed.setdefault("message_id", getattr(receipt, "message_id", ""))
    request = made.protos.EndTransactionRequest(
        topic=made.protos.Resource(name=topic),
        transaction_id=receipt.transaction_id,
        resolution=resolution,
        source=CLIENT,
    )
    for name, value in changed.items():
        setattr(request, name, value)
    return int(made.call("EndTransaction", request).status.code)


def test_what_is_committed_is_delivered_once(tmp_path: Path) -> None:
    with consuming(tmp_path, topic="Trans") as (broker, made, consumer):
        committed, rolled_back = half(made, b"committed"), half(made, b"rolled back")
        assert stored(broker, "Trans") == []
        assert end(made, rolled_back, ROLLBACK) == Code.OK
        assert end(made, committed, COMMIT) == Code.OK
        assert end(made, committed, COMMIT) == Code.INVALID_TRANSACTION_ID
        assert end(made, rolled_back, COMMIT) == Code.INVALID_TRANSACTION_ID
        assert len(stored(broker, "Trans")) == 1
        _, (found,) = consumer.receive()
        assert found.body == b"committed"
        assert found.system_properties.message_type == TRANSACTION
        assert consumer.ack(found).status.code == Code.OK


def test_9431_4638_a_transaction_is_ended_after_a_restart(tmp_path: Path) -> None:
    with consuming(tmp_path) as (_, made, _):
        receipt = half(made, b"x")
    with consuming(tmp_path) as (broker, made, _):
        assert end(made, receipt, COMMIT, source=SERVER_CHECK) == Code.OK
        assert len(stored(broker, "Trans")) == 1


def test_9431_an_id_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with consuming(tmp_path) as (broker, made, _):
        receipt = half(made, b"x")
        assert end(made, receipt, COMMIT, topic="Normal") == Code.INVALID_TRANSACTION_ID
        for text in ("", "x", receipt.message_id, "0" * 31 + "1", "7" + "F" * 31):
            code = end(made, receipt, COMMIT, transaction_id=text)
            assert code == Code.INVALID_TRANSACTION_ID, text
        assert end(made, receipt, resolution=0) == Code.OK, "the client does not know it yet"
        assert stored(broker, "Trans") == []
        assert end(made, receipt, COMMIT) == Code.OK


@pytest.mark.parametrize("count", [1, 3])
def test_receipts_of_half_messages_have_their_ids(tmp_path: Path, count: int) -> None:
    with consuming(tmp_path) as (broker, made, _):
        messages = [
            made.message("Trans", b"%d" % n, message_type=TRANSACTION) for n in range(count)
        ]
        answer = made.send(*messages)
        for receipt in answer.entries:
            assert end(made, receipt, COMMIT) == Code.OK
        assert len(stored(broker, "Trans")) == count


def test_8316_8158_a_producer_is_asked_until_it_ends_the_transaction(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"transaction_check_interval": 100, "transaction_time_out": 100}
    with consuming(tmp_path, topic="Trans", **settings) as (broker, made, consumer):
        now = broker._clock.now()
        message = made.message("Trans", b"x", message_type=TRANSACTION, tag="t", born_timestamp=now)
        message.user_properties["colour"] = "blue"
        (receipt,) = made.send(message).entries
        producer = made.protos.Settings(client_type=1)
        producer.publishing.topics.add(name="Trans")
        with open_telemetry(made, producer) as commands:
            asked = next(commands).recover_orphaned_transaction_command
            assert asked.transaction_id == receipt.transaction_id
            shown = asked.message
            assert (shown.topic.name, shown.body, shown.user_properties) == (
                "Trans",
                b"x",
                {"colour": "blue"},
            )
            system = shown.system_properties
            assert (system.message_id, system.message_type, system.tag) == (
                receipt.message_id,
                TRANSACTION,
                "t",
            )
            again = next(commands).recover_orphaned_transaction_command
            assert end(made, again, ROLLBACK, message_id=receipt.message_id, source=0) == Code.OK
            (receipt,) = made.send(message).entries
            asked = next(commands).recover_orphaned_transaction_command
            while asked.transaction_id != receipt.transaction_id:
                asked = next(commands).recover_orphaned_transaction_command
            found = {"message_id": receipt.message_id, "source": SERVER_CHECK}
            assert end(made, asked, COMMIT, **found) == Code.OK
        assert consumer.receive()[1][0].body == b"x"
        assert len(broker.managers.transactions.service.open_offsets()) == 0
