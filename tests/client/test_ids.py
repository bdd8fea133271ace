"""Unique ids have the layout that Java's tools decode."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from congreve.client.ids import UniqueIds, client_id


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    request.addfinalizer(time.tzset)


def local(*when: int) -> float:
    return time.mktime((*when, *(0,) * (6 - len(when)), 0, 0, -1))


@pytest.mark.usefixtures("zone")
def test_an_id_holds_address_process_token_time_and_counter() -> None:
    now = local(2026, 11, 21, 4, 30) + 0.25
    ids = UniqueIds("10.1.2.3", clock=lambda: now, token=0xCAFE0001)
    first, second = ids(), ids()
    assert len(first) == 32
    assert first[:8] == "0A010203"
    assert first[8:12] == f"{os.getpid() & 0xFFFF:04X}"
    assert first[12:20] == "CAFE0001"
    since_month_began = int((now - local(2026, 11, 1)) * 1000)
    assert int(first[20:28], 16) == since_month_began
    assert (first[28:], second[28:]) == ("0000", "0001")


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(("year", "month"), [(2026, 12), (2027, 1), (2028, 2)])
def test_the_time_of_an_id_starts_again_each_month(year: int, month: int) -> None:
    now = local(year, month, 1) - 1
    ids = UniqueIds("10.1.2.3", clock=lambda: now)
    assert int(ids()[20:28], 16) > 27 * 86_400_000
    now += 2
    assert int(ids()[20:28], 16) == 1000


def test_a_clock_that_steps_back_into_the_last_month_gives_no_huge_time() -> None:
    now = local(2026, 12, 1) + 5
    ids = UniqueIds("10.1.2.3", clock=lambda: now)
    ids()
    now -= 10
    assert int(ids()[20:28], 16) == 0


def test_counter_wraps_and_stays_32_digits() -> None:
    ids = UniqueIds("10.1.2.3", clock=lambda: 1e9)
    given = [ids() for _ in range(65_537)]
    assert given[65_536] == given[0]
    assert {len(each) for each in given} == {32}


def test_generators_and_clients_of_one_process_differ() -> None:
    ids = [UniqueIds("10.1.2.3", clock=lambda: 1e9)() for _ in range(50)]
    assert len(set(ids)) == 50
    assert client_id("10.1.2.3") != client_id("10.1.2.3")


def test_threads_never_get_the_same_id() -> None:
    ids = UniqueIds("10.1.2.3", clock=lambda: 1.7e9)
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: [ids() for _ in range(1000)], range(16)))
    assert len({one for some in made for one in some}) == 16_000
