"""A client's half message does not affect the transactions of others."""

import pytest
from harness.transaction_bench import (
    COMMIT,
    HALF_TOPIC,
)

MINUTE = 60_000


@pytest.mark.parametrize(
    "poison",
    [
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": "9" * 5_000},
        {"TRANSACTION_CHECK_TIMES": "9" * 5_000},
        {"TRANSACTION_CHECK_TIMES": "\u0663"},
        {"REAL_TOPIC": "X", "REAL_QID": "9" * 5_000},
    ],
    ids=lambda poison: next(iter(poison)),
)
def test_a_half_message_with_invalid_numbers_does_not_stop_checks_of_others(
    bench, connection, poison
) -> None:
    bench.producer(connection)
    bench.send_half(b"poison", **poison)
    bench.send_half(b"good")
    bench.clock.advance(MINUTE)
    assert "key-b'good'" in [asked.ext_fields["transactionId"] for asked in bench.check()]


@pytest.mark.parametrize(
    "forged", [{"TRANSACTION_CHECK_TIMES": "1"}, {"TRAN_PREPARED_QUEUE_OFFSET": "0"}], ids=str
)
def test_a_forged_copy_of_a_half_message_does_not_replace_it(bench, connection, forged) -> None:
    bench.producer(connection)
    bench.send_half(b"good")
    bench.send_half(b"forged", UNIQ_KEY="key-b'good'", **forged)
    bench.killed()
    bench.producer(connection)
    bench.clock.advance(MINUTE)
    for asked in bench.check():
        bench.answer_check(asked, COMMIT)
    assert b"good" in bench.visible()


@pytest.mark.parametrize("attack", ["commit", "clone", "remove"])
def test_no_client_moves_the_offsets_of_transactions(bench, attack: str) -> None:
    bench.end(bench.send_half(b"old"))
    half = bench.send_half(b"good")
    bench.restart()
    saved = bench.offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0)
    if attack == "commit":
        bench.offsets.commit("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0, 1_000)
    elif attack == "clone":
        bench.offsets.commit("stranger", HALF_TOPIC, 0, 1_000)
        bench.offsets.clone("stranger", "CID_RMQ_SYS_TRANS", HALF_TOPIC)
    else:
        bench.offsets.remove_group("CID_RMQ_SYS_TRANS")
    assert bench.offsets.query("CID_RMQ_SYS_TRANS", HALF_TOPIC, 0) == saved
    bench.killed()
    assert bench.end(half).code == 0
    assert bench.visible() == [b"old", b"good"]


@pytest.mark.parametrize("place", [1 << 56, 0], ids=["beyond the log", "a neighbour's"])
def test_a_half_message_after_a_damaged_entry_is_not_lost(bench, connection, place: int) -> None:
    bench.producer(connection)
    for body in (b"one", b"two"):
        bench.send_half(body)
    with open(bench.store.queues.get(HALF_TOPIC, 0).files[0], "r+b") as file:
        file.seek(20)
        file.write(place.to_bytes(8, "big"))
    bench.clock.advance(MINUTE)
    for asked in bench.check():
        bench.answer_check(asked, COMMIT)
    assert bench.visible() == [b"one", b"two"]
