"""What a parked message's entry says, and what its record looks like."""

from congreve.records.message.message import Record
from congreve.records.message.parked import ParkingRule, parked

RULE = ParkingRule((1_000, 60_000), 500)


def test_a_level_above_the_highest_counts_as_the_highest() -> None:
    assert [RULE.level_due(level, 7) for level in (1, 2, 3)] == [1_007, 60_007, 60_007]


def test_an_entry_gives_the_time_at_which_its_message_is_due() -> None:
    said = [
        RULE.entry_time(topic, properties, 7)
        for topic, properties in [
            ("SCHEDULE_TOPIC_XXXX", {"DELAY": "2"}),
            ("SCHEDULE_TOPIC_XXXX", {"DELAY": "0"}),
            ("SCHEDULE_TOPIC_XXXX", {"DELAY": "soon"}),
            ("T", {"DELAY": "2"}),
            ("rmq_sys_wheel_timer", {"TIMER_OUT_MS": "99"}),
            ("rmq_sys_wheel_timer", {"TIMER_OUT_MS": "9999"}),
            ("rmq_sys_wheel_timer", {}),
        ]
    ]
    assert said == [60_007, None, None, None, 99, 507, 0]


def test_a_parked_record_names_its_target() -> None:
    sent = Record(topic="T", queue_id=3, body=b"body", properties={"REAL_TOPIC": "elsewhere"})
    kept = parked(sent, "half", 0, {**sent.properties, "a": "b"})
    assert (kept.topic, kept.queue_id, kept.body) == ("half", 0, b"body")
    assert kept.properties == {"REAL_TOPIC": "T", "a": "b", "REAL_QID": "3"}
