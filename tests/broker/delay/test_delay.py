"""Which messages are parked, until when, and which delivery times are refused."""

import pytest

from congreve.broker.delay.parking import park
from congreve.broker.errors import RefusedError
from congreve.engine.config import StoreConfig
from congreve.records.message.message import Record

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
CONFIG = StoreConfig(root_dir="unused")


def message(**properties: str) -> Record:
    return Record(topic="T", body=b"b", queue_id=3, properties={"TAGS": "a", **properties})


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({"TIMER_DELIVER_MS": str(NOW + 1)}, NOW + 1),
        ({"TIMER_DELAY_MS": "1500"}, NOW + 1_500),
        ({"TIMER_DELAY_SEC": "2"}, NOW + 2_000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "9", "TIMER_DELIVER_MS": "9"}, NOW + 2_000),
        ({"TIMER_DELAY_MS": "+9", "TIMER_DELIVER_MS": str(NOW + 1)}, NOW + 9),
        ({"TIMER_DELIVER_MS": str(NOW + 40 * DAY_MS)}, NOW + 40 * DAY_MS),
        ({"DELAY": "0", "TIMER_DELAY_MS": "7"}, NOW + 7),
    ],
)
def test_the_first_of_three_properties_sets_the_deliver_time(properties, due):
    parked = park(message(**properties), CONFIG, NOW)
    assert (parked.topic, parked.queue_id) == ("rmq_sys_wheel_timer", 0)
    added = {"TIMER_OUT_MS": str(due), "REAL_TOPIC": "T", "REAL_QID": "3"}
    assert parked.properties == {"TAGS": "a", **properties, **added}


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({"TIMER_DELIVER_MS": str(NOW)}, NOW),
        ({"TIMER_DELIVER_MS": str(NOW - 7), "TIMER_OUT_MS": "9"}, NOW - 7),
        ({"TIMER_DELIVER_MS": "-5"}, 0),
        ({"TIMER_DELAY_SEC": "0"}, NOW),
        ({"TIMER_DELAY_MS": "-1"}, NOW - 1),
    ],
)
def test_a_message_with_a_past_deliver_time_is_delivered_at_once(properties, due):
    assert park(message(**properties), CONFIG, NOW) == message(TIMER_OUT_MS=str(due))


def test_a_brokers_own_time_says_nothing_in_a_message_that_is_sent():
    assert park(message(TIMER_OUT_MS=str(NOW + 10)), CONFIG, NOW) == message()


def test_a_delay_level_takes_precedence_over_a_deliver_time():
    parked = park(message(DELAY="2", TIMER_DELAY_MS="7", TIMER_OUT_MS="8"), CONFIG, NOW)
    assert (parked.topic, parked.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)
    added = {"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "3"}
    assert parked.properties == {"TAGS": "a", **added}


@pytest.mark.parametrize(
    ("properties", "code", "named"),
    [
        ({"TIMER_DELIVER_MS": str(NOW + 40 * DAY_MS + 1)}, 13, "3456000000ms"),
        ({"TIMER_DELAY_SEC": "3456001"}, 13, "TIMER_DELAY_SEC=3456001"),
        ({"TIMER_DELIVER_MS": "tomorrow"}, 13, "'tomorrow'"),
        ({"TIMER_DELAY_MS": "1.5"}, 13, "'1.5'"),
        ({"TIMER_DELAY_MS": "9" * 19}, 13, "999"),
    ],
)
def test_an_invalid_deliver_time_is_refused_and_named(properties, code, named):
    with pytest.raises(RefusedError) as refused:
        park(message(**properties), CONFIG, NOW)
    assert refused.value.code == code and named in str(refused.value)


def test_deliver_times_can_be_disabled():
    config = StoreConfig(root_dir="unused", timer_wheel_enable=False)
    with pytest.raises(RefusedError, match="timerWheelEnable is false") as refused:
        park(message(TIMER_DELAY_MS="7"), config, NOW)
    assert refused.value.code == 1
    assert park(message(), config, NOW) == message()


@pytest.mark.parametrize(
    ("text", "level"),
    [("3", 3), ("+1", 1), ("007", 7), ("-1", 0), ("0", 0), ("2147483647", 18), ("\u0664", 4)],
)
def test_a_delay_level_is_read_as_java_reads_it(text, level):
    parked = park(message(DELAY=text), CONFIG, NOW)
    assert parked.queue_id == (level - 1 if level else 3)
    assert parked.topic == ("SCHEDULE_TOPIC_XXXX" if level else "T")
    assert parked.properties["DELAY"] == (str(level) if level else text)


@pytest.mark.parametrize(
    "text",
    [
        *("4x", "4Agent-Flags\x010", " 1", "1 ", "0x1", "1.0", "1_0", "+", "-", "++1", "\u00b2"),
        *("2147483648", "-2147483649", "99999999999", "9" * 30_000, "\U0001d7ce"),
    ],
)
def test_a_delay_level_that_java_cannot_read_is_refused_and_named(text):
    with pytest.raises(RefusedError) as raised:
        park(message(DELAY=text), CONFIG, NOW)
    assert raised.value.code == 1
    assert f"DELAY={text!r:.60}" in str(raised.value)
