"""Token buckets: what passes, what waits, and how many names there are."""

from hypothesis import given
from hypothesis import strategies as st

from congreve.broker.quota_limits import Limits, Names, Use, charged_names
from congreve.broker.quotas.quota_table import QuotaTable

TOPIC, GROUP, ACCOUNT, ADDRESS = range(4)
SECOND = 1_000_000_000
BEGIN = 10**18  # later than the machine's clock, with which buckets are created


def names(topic: str = "T", group: str = "G", account: str | None = None) -> Names:
    return charged_names(topic, group, account, bytes(4))


def table_of(kind: int, name: bytes, **limits: int) -> QuotaTable:
    table = QuotaTable()
    table.set_rates(kind, name, Limits(**limits).rates)
    return table


def passed(table: QuotaTable, count: int, at: int, who: Names | None = None) -> int:
    """How many of `count` sends of one message pass at this time."""
    return sum(table.take_for(who or names(), Use.SENDS, 1, 10, at) == 0 for _ in range(count))


def test_a_table_without_limits_accepts_everything() -> None:
    table = QuotaTable()
    assert not table
    assert passed(table, 100, BEGIN) == 100


def test_a_bucket_holds_the_quota_of_one_second_and_refills() -> None:
    table = table_of(TOPIC, b"T", send_messages=10)
    assert table
    assert passed(table, 100, BEGIN) == 10
    assert passed(table, 100, BEGIN + SECOND // 2) == 5
    assert passed(table, 100, BEGIN + 60 * SECOND) == 10
    assert passed(table, 100, BEGIN, names("other")) == 100
    assert table.limited(TOPIC, b"T") == (100 - 10 + 100 - 5 + 100 - 10, 0, 0, 0, 0)
    assert table.limited(GROUP) == (0, 0, 0, 0, 0)


def test_the_wait_is_proportional_to_the_debt() -> None:
    table = table_of(GROUP, b"G", pull_bytes=1000)
    who = names()
    assert table.take_for(who, Use.PULLS, 0, 0, BEGIN) == 0
    table.charge_for(who, Use.PULLS, 32, 3000, BEGIN)
    wait = table.take_for(who, Use.PULLS, 0, 0, BEGIN)
    assert 2 * SECOND < wait < 2 * SECOND + SECOND // 100
    assert table.take_for(who, Use.PULLS, 0, 0, BEGIN + wait) == 0


def test_a_refused_request_is_not_charged() -> None:
    table = table_of(TOPIC, b"T", send_messages=1)
    table.set_rates(GROUP, b"G", Limits(send_messages=5).rates)
    assert passed(table, 10, BEGIN) == 1
    assert passed(table, 10, BEGIN, names("other")) == 4


def test_accounts_and_addresses_have_quotas() -> None:
    table = table_of(ACCOUNT, b"someone", send_messages=2)
    table.set_rates(ADDRESS, bytes(4), Limits(send_messages=3).rates)
    assert passed(table, 10, BEGIN, names(account="someone")) == 2
    assert passed(table, 10, BEGIN) == 1


def test_defaults_apply_to_names_without_a_quota() -> None:
    table = QuotaTable()
    table.set_default(TOPIC, Limits(send_messages=3).rates)
    table.set_rates(TOPIC, b"T", Limits(send_messages=5).rates)
    assert passed(table, 10, BEGIN) == 5
    assert [passed(table, 10, BEGIN, names(topic)) for topic in ("a", "b")] == [3, 3]
    table.drop_rates(TOPIC, b"T")
    assert passed(table, 10, BEGIN + 9 * SECOND) == 3
    table.set_default(TOPIC, Limits().rates)
    assert not table
    assert passed(table, 10, BEGIN) == 10


def test_new_limits_keep_the_debt() -> None:
    table = table_of(TOPIC, b"T", send_bytes=10)
    assert table.take_for(names(), Use.SENDS, 1, 1000, BEGIN) == 0
    table.set_rates(TOPIC, b"T", Limits(send_bytes=100).rates)
    assert table.take_for(names(), Use.SENDS, 1, 1, BEGIN) > 9 * SECOND


def test_names_beyond_the_limit_share_one_bucket() -> None:
    table = QuotaTable(names_max=2)
    table.set_default(GROUP, Limits(send_messages=3).rates)
    counts = [passed(table, 10, BEGIN, names(group=group)) for group in "abcd"]
    assert counts == [3, 3, 3, 0]
    # A name whose bucket is full may be evicted a second later.
    later = BEGIN + 9 * SECOND
    assert [passed(table, 10, later, names(group=group)) for group in "ef"] == [3, 3]


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 2 * SECOND), st.integers(1, 40)), min_size=1, max_size=30),
)
def test_the_rate_over_time_is_the_quota(rate: int, steps: list[tuple[int, int]]) -> None:
    table = table_of(TOPIC, b"T", send_messages=rate)
    now, through = BEGIN, 0
    for pause, messages in steps:
        now += pause
        wait = table.take_for(names(), Use.SENDS, messages, 1, now)
        through += messages if not wait else 0
        # The last one may be larger than what was left.
        assert through <= rate + (now - BEGIN) * rate / SECOND + 40
        if wait:
            now += wait
            assert table.take_for(names(), Use.SENDS, 0, 0, now) == 0
