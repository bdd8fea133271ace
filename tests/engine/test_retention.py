"""Which segments are deleted, and when puts are refused."""

import time

import pytest

from congreve.engine.config import StoreConfig
from congreve.engine.retention import MAX_FILES_A_ROUND, Retention, SegmentAge

HOUR = 3_600_000
NOON = int(time.mktime((2024, 5, 17, 12, 30, 0, 0, 0, -1)) * 1000)
FOUR = int(time.mktime((2024, 5, 17, 4, 30, 0, 0, 0, -1)) * 1000)


def retention(**settings: object) -> Retention:
    return Retention(StoreConfig(root_dir="unused", **settings))  # type: ignore[arg-type]


def ages(now: int, *hours: float) -> list[SegmentAge]:
    return [SegmentAge(i << 30, now - int(h * HOUR)) for i, h in enumerate(hours)]


def test_expired_segments_are_deleted_only_at_the_hour_of_deletion() -> None:
    assert retention().expired(ages(FOUR, 100, 73, 71), FOUR, 0.1) == [0, 1 << 30]
    assert retention().expired(ages(NOON, 100, 73, 71), NOON, 0.1) == []


@pytest.mark.parametrize(("use", "gone"), [(0.75, 0), (0.76, 1), (-1.0, 1)])
def test_a_filling_disk_deletes_expired_segments_at_any_hour(use: float, gone: int) -> None:
    assert len(retention().expired(ages(NOON, 73, 71), NOON, use)) == gone


def test_a_nearly_full_disk_deletes_unexpired_segments() -> None:
    assert retention().expired(ages(NOON, 3, 2), NOON, 0.86) == [0, 1 << 30]
    assert retention(clean_file_forcibly_enable=False).expired(ages(NOON, 3, 2), NOON, 0.86) == []


def test_a_younger_segment_stops_the_round() -> None:
    assert retention().expired(ages(FOUR, 80, 1, 1), FOUR, 0.1) == [0]


def test_a_segment_is_not_younger_than_a_later_one() -> None:
    """The clock was ahead for a while, by less or by more than until now."""
    assert retention().expired(ages(FOUR, 100, 50, 80, 75, 1), FOUR, 0.1) == [
        number << 30 for number in range(4)
    ]
    assert retention().expired(ages(FOUR, 100, -9600, 80, 1), FOUR, 0.1) == [0, 1 << 30, 2 << 30]


def test_a_segment_of_the_future_has_an_age_from_the_first_look_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rule = retention()
    days = [(number * 24 * HOUR, ages(FOUR, 100, -9600, -9600)) for number in (0, 1, 4)]
    found = [rule.expired(segments, FOUR + later, 0.1) for later, segments in days]
    assert found == [[0], [0], [0, 1 << 30, 2 << 30]]
    assert caplog.text.count("of the future") == 2


def test_a_segment_that_tables_need_ends_the_round() -> None:
    one, two, three = ages(FOUR, 100, 90, 80)
    needed = SegmentAge(two.base_offset, two.last_store_timestamp, is_needed=True)
    assert retention().expired([one, needed, three], FOUR, 0.9) == [0]


def test_a_round_is_bounded() -> None:
    chosen = retention().expired(ages(FOUR, *[80.0] * 30), FOUR, 0.1)
    assert chosen == [i << 30 for i in range(MAX_FILES_A_ROUND)]


def test_manual_rounds_ignore_the_hour_and_are_limited() -> None:
    rule = retention()
    rule.request_manually()
    found = [len(rule.expired(ages(NOON, 80), NOON, 0.1)) for _ in range(21)]
    assert found == [1] * 20 + [0]


def test_several_hours_of_deletion_may_be_set() -> None:
    rule = retention(delete_when="04;12")
    assert rule.expired(ages(NOON, 80), NOON, 0.1) == [0]


def test_puts_are_refused_above_090_and_accepted_again_at_085() -> None:
    """D26: one rule for both checks, no flapping between them."""
    rule = retention()
    seen = []
    full = False
    for use in (0.90, 0.91, 0.90, 0.86, 0.85, 0.90, -1.0):
        full = rule.disk_full(use, full)
        seen.append(full)
    assert seen == [False, True, True, True, False, False, False]
