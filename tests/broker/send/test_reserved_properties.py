"""With accounts, properties that only brokers set are removed from sends."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.broker import Broker
from congreve.broker.requests.properties import stored
from congreve.records.batches.batch_body import is_ordinary
from congreve.records.message.message import Record
from congreve.records.message.properties import NAMES, SET_BY_BROKERS, SET_IN_COPIES
from congreve.records.message.property_codec import encode_properties
from congreve.records.record import decode_record
from congreve.remoting.messages.headers import SendMessageRequestHeaderV2

from ..guarded import guarded
from ..send_and_pull import Bench, text
from ..serving.test_fastpath import batch_body
from ..tool import Tool

FORGED = dict.fromkeys(sorted(SET_BY_BROKERS), "7") | {"RETRY_TOPIC": "U"}
KEPT = {"KEYS": "k", "own": "1"}
names = st.one_of(st.sampled_from(sorted(NAMES)), st.text(st.sampled_from("ROMTI_E"), min_size=1))


@given(st.dictionaries(names, st.sampled_from(["1", "x"]), max_size=4))
def test_compiled_code_leaves_sends_with_such_a_property_to_python(given: dict[str, str]) -> None:
    encoded = encode_properties(given)
    reserved = not given.keys().isdisjoint(SET_BY_BROKERS)
    expected = None if reserved else stored(encoded)
    assert stored(encoded, reserves=True) == expected
    body = batch_body((b"first", b"own\x011"), (b"second", encoded))
    assert is_ordinary(body, reserves=True) == (is_ordinary(body) and not reserved)


def last(broker: Broker, topic: str, queue_id: int = 0, back: int = 1) -> Record:
    queue = broker.store.queues.get(topic, queue_id)
    view = broker.store.read(queue[queue.max - back][0])
    assert view is not None
    return decode_record(view)


async def send(tool: Tool, topic: str, body: bytes, properties: str, **fields: object) -> None:
    header = SendMessageRequestHeaderV2(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=properties,
        **fields,  # type: ignore[arg-type]
    )
    answer = await tool.ask(320 if header.batch else 310, header.fields(), body)
    assert answer.code == 0, answer.remark


async def test_a_producer_sets_none_of_them(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, tools):
        await tools.of("administrator").create_topic("T")
        producer, given = tools.of("pub-of-T"), text(**KEPT, **FORGED)
        await send(producer, "T", b"plain", text(**KEPT))
        expected = last(broker, "T").properties
        await send(producer, "T", b"one", given)
        assert last(broker, "T").properties == expected
        batch = batch_body((b"a", given.encode()), (b"b", b"x\x011"))
        await send(producer, "T", batch, "", batch=True)
        for back, own in ((2, KEPT), (1, {"x": "1"})):
            assert last(broker, "T", back=back).properties.items() >= own.items()
            assert last(broker, "T", back=back).properties.keys().isdisjoint(SET_BY_BROKERS)
        half = "\x02TRAN_MSG\x01true\x02PGROUP\x01P"
        assert (await producer.send("T", b"half", sys_flag=4, properties=given + half)).code == 0
        found = last(broker, "RMQ_SYS_TRANS_HALF_TOPIC").properties
        assert found.keys() & SET_BY_BROKERS == {"REAL_TOPIC", "REAL_QID"}
        assert found["REAL_TOPIC"] == "T"


@pytest.mark.parametrize(
    ("sender", "topic", "marked"),
    [("both-of-T", "T", False), ("both-of-T", "U", True), ("sub-of-T", "T", True)],
)
async def test_a_copy_of_a_consumer_keeps_what_it_needs(
    tmp_path: Path, sender: str, topic: str, marked: bool
) -> None:
    async with guarded(tmp_path) as (broker, tools):
        await tools.of("administrator").heart_beat("G", "T")
        given = FORGED | {"RETRY_TOPIC": topic}
        await send(tools.of(sender), "%RETRY%G", b"copy", text(**KEPT, **given))
        found = last(broker, "%RETRY%G").properties
        mark = {"RETRY_TOPIC_UNCHECKED"} if marked else set()
        assert found.keys() & SET_BY_BROKERS == SET_IN_COPIES | mark
        assert found["RETRY_TOPIC"] == topic
        batch = batch_body((b"a", text(RETRY_TOPIC=topic).encode()))
        await send(tools.of(sender), "%RETRY%G", batch, "", batch=True)
        assert ("RETRY_TOPIC_UNCHECKED" in last(broker, "%RETRY%G").properties) == marked


async def test_a_message_that_is_sent_back_names_its_own_topic(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, tools):
        await tools.of("administrator").create_topic("T")
        await tools.of("administrator").heart_beat("G", "T")
        # As a broker without accounts has stored it.
        put = broker.store.put(Record(topic="T", body=b"x", properties=dict(FORGED), queue_id=0))
        back = {"offset": str(put.physical_offset), "group": "G", "delayLevel": "-1"}
        assert (await tools.of("sub-of-T").ask(36, back)).code == 0
        dead = last(broker, "%DLQ%G").properties
        assert dead["RETRY_TOPIC"] == "T"


def test_without_accounts_all_are_stored(tmp_path: Path, connection: object) -> None:
    bench = Bench(str(tmp_path), connection)
    try:
        given = KEPT | {name: FORGED[name] for name in FORGED if name != "TIMER_OUT_MS"}
        bench.send(properties=text(**given))
        assert bench.stored("T").properties.items() >= given.items()
        bench.send(batch_body((b"a", text(**given).encode())), code=320, batch=True)
        assert bench.stored("T", offset=1).properties.items() >= given.items()
    finally:
        bench.store.close()
