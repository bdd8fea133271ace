"""Parts of the console without a broker."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from congreve.client.observability.trace import trace_record
from congreve.client.observability.trace_reader import read_trace
from congreve.console.web import formats
from congreve.console.web.audit import LINES_MAX, ConsoleAudit, broker_lines
from congreve.console.web.broker_settings import compare
from congreve.console.web.cluster import Broker, BrokerStatus
from congreve.console.web.live import event
from congreve.console.web.pages import url, window
from congreve.console.web.serving.security import host_name
from congreve.console.web.snapshot import Lag, Snapshot, combine, parse_lags
from congreve.console.web.trouble import (
    DISK_BAD,
    LAG_MESSAGES,
    SLAVE_BEHIND_BYTES,
    as_bytes,
    find_trouble,
)
from congreve.console.web.views.timers import BARS_MAX, HOUR_MS, _of_figures, histogram
from congreve.remoting.errors import BodyError
from congreve.remoting.messages.admin_bodies import (
    ConsumeStats,
    ConsumeStatsList,
    DelayedCount,
    DelayedCounts,
    OffsetWrapper,
)
from congreve.remoting.messages.body import MessageQueue

NOW_MS = 1_800_000_000_000


# --- formats


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.25, "250 ms"),
        (59, "59 s"),
        (90, "1 min 30 s"),
        (3_600, "1 h"),
        (5_000, "1 h 23 min"),
        (100_000, "1 d 3 h"),
        (86_400 * 30, "30 d"),
    ],
)
def test_durations_have_their_largest_units(seconds: float, text: str) -> None:
    assert formats.duration(seconds) == text


@given(st.floats(0, 1e12))
def test_every_duration_has_a_text(seconds: float) -> None:
    assert formats.duration(seconds)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_time_has_a_text(time_ms: int) -> None:
    moment, minute = formats.moment(time_ms), formats.minute(time_ms)
    assert moment
    assert minute == moment == "–" or moment.startswith(minute.removesuffix(" UTC") + ":")
    assert formats.age(time_ms)


@given(st.binary(max_size=600))
def test_every_body_has_a_preview_of_one_line_and_hex(body: bytes) -> None:
    line = formats.preview(body, 100)
    assert "\n" not in line and len(line) < 200
    formats.body_hex(body)
    formats.body_text(body)
    formats.body_json(body)


def test_shown_text_has_no_control_and_format_characters() -> None:
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    left = {sign for sign in formats.plain(every) if category(sign) in ("Cc", "Cf")}
    assert left == {"\n", "\t"}


def test_bodies_are_shown_as_text_json_and_hex() -> None:
    assert formats.body_text(b"\xff") is None
    assert formats.body_json(b'{"a":1}') == '{\n  "a": 1\n}'
    assert formats.body_json(b"{a") is None
    assert formats.body_json(b"[" * 100_000) is None
    deep = b"[" * 30 + b"]" * 30
    assert formats.body_json(deep) is not None
    assert formats.body_json(b"[" + deep + b"," + deep + b"]" * 1) is not None
    assert formats.body_json(b"[[[" + deep + b"]]]") is None
    assert formats.body_hex(b"ab\n") == "00000000  61 62 0a" + " " * 41 + "ab."
    assert formats.preview(("ü" * 600).encode(), 100) == "ü" * 100 + "…"
    assert "not text" in formats.preview("grün".encode()[:3])
    assert "not text" in formats.preview(b"\xff\xfe\xfd" * 10)


def test_urls_omit_empty_parameters() -> None:
    assert url("/a", b="c d", e=None, f="") == "/a?b=c%20d"


@pytest.mark.parametrize(
    ("number", "rows"), [("1", [0, 1]), ("2", [2, 3]), ("3", [4]), ("9", [4]), ("x", [0, 1])]
)
def test_a_long_list_has_pages(number: str, rows: list[int]) -> None:
    assert window(range(5), number, 2).rows == rows


def test_a_server_sent_event_has_each_line_of_its_text() -> None:
    assert event("a\nb", "x") == "event: x\ndata: a\ndata: b\n\n"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("LocalHost:80", "localhost"),
        ("[::1]:80", "::1"),
        ("a@b", ""),
        ("a/b", ""),
        ("", ""),
        ("a:b", ""),
    ],
)
def test_host_names_are_read(host: str, name: str) -> None:
    assert host_name(host) == name


# --- lag


def stats(
    group: str, topic: str, queues: list[tuple[int, int, int]]
) -> dict[str, list[ConsumeStats]]:
    table = {
        MessageQueue(topic=topic, broker_name="b", queue_id=number): OffsetWrapper(
            broker_offset=end, consumer_offset=consumed, last_timestamp=at
        )
        for number, (end, consumed, at) in enumerate(queues)
    }
    return {group: [ConsumeStats(offset_table=table, consume_tps=2.0)]}


def test_lag_is_read_from_a_brokers_report() -> None:
    body = ConsumeStatsList(
        consume_stats_list=[
            stats("g", "t", [(10, 4, 500), (10, 10, 300), (5, 3, 400)]),
            stats("h", 't"{', [(1, 1, 0)]),
        ]
    )
    rows = parse_lags(body.encode())
    assert rows == [Lag("g", "t", 8, 400, 25, 2.0), Lag("h", 't"{', 0, 0, 1, 2.0)]


@given(st.binary(max_size=200))
def test_a_report_that_cannot_be_read_is_an_error(text: bytes) -> None:
    with suppress(BodyError):
        parse_lags(text)


# --- what is wrong


def status(**figures: str) -> BrokerStatus:
    return BrokerStatus(Broker("c", "b", 0, "127.0.0.1:10911"), figures)


def snapshot(*lags: Lag) -> Snapshot:
    from congreve.console.web.snapshot import BrokerTables
    from congreve.remoting.messages.bodies import SubscriptionGroupConfig

    groups = {lag.group: SubscriptionGroupConfig(group_name=lag.group) for lag in lags}
    return combine([BrokerTables("b", {}, groups)], {"b": list(lags)}, {})


@pytest.mark.parametrize(
    ("figures", "said", "urgent"),
    [
        (
            {"storeWritable": "false (the disk is full)"},
            "takes no messages: the disk is full",
            True,
        ),
        ({"stateFilesWritable": "false (x)"}, "cannot save topics", True),
        ({"logDamaged": "1"}, "A part of the log", True),
        (
            {"logDamaged": "3", "haRepairs": "10.0.0.2:1 (slave)"},
            "repair it: 10.0.0.2:1 (slave)",
            False,
        ),
        ({"storeShortages": "descriptors"}, "short of resources: descriptors", False),
        ({"commitLogDiskRatio": "0.80"}, "80% full: free space", False),
        ({"commitLogDiskRatio": "0.1", "consumeQueueDiskRatio": str(DISK_BAD)}, "full", True),
        ({"remainHowManyDataToFlush": "65.0 MiB"}, "not on disk yet", False),
        ({"remainHowManyDataToFlush": "65.0 MB"}, "not on disk yet", False),
        ({"sendThreadPoolQueueHeadWaitTimeMills": "1500"}, "wait for 1 s", True),
        ({"putLatency99": "900.0"}, "take 900 ms or more", False),
        ({"brokerRole": "SYNC_MASTER", "haSlaves": "none"}, "no send gets SEND_OK", True),
    ],
)
def test_each_problem_of_a_broker_is_reported(
    figures: dict[str, str], said: str, urgent: bool
) -> None:
    (trouble,) = find_trouble([status(**figures)], None, NOW_MS)
    assert said in trouble.text
    assert trouble.urgent is urgent


def test_slaves_that_are_behind_or_follow_no_master_are_reported() -> None:
    def slave(**figures: str) -> BrokerStatus:
        return BrokerStatus(Broker("c", "b", 1, "127.0.0.1:10912"), figures)

    master = status(commitLogMaxOffset=str(SLAVE_BEHIND_BYTES + 2_000), brokerRole="SYNC_MASTER")
    near, far = slave(commitLogMaxOffset="2000"), slave(commitLogMaxOffset="1999")
    lost = slave(haMaster="none (the master refuses the connection)")
    assert find_trouble([master, near], None, NOW_MS) == []
    (trouble,) = find_trouble([far, master], None, NOW_MS)
    assert trouble.text == "Slave 1 of broker b (127.0.0.1:10912) is 64.0 MiB behind its master."
    (trouble,) = find_trouble([master, lost], None, NOW_MS)
    assert trouble.text.endswith("follows no master: the master refuses the connection.")


def test_a_healthy_cluster_has_no_findings() -> None:
    healthy = {"storeWritable": "true", "commitLogDiskRatio": "0.3", "putLatency99": "1.0"}
    behind = Lag("g", "t", 5, NOW_MS - 1_000)
    assert find_trouble([status(**healthy)], snapshot(behind), NOW_MS) == []


def test_missing_brokers_come_first() -> None:
    dead = BrokerStatus(Broker("c", "b", 0, "127.0.0.1:1"), error="refused")
    slave = BrokerStatus(Broker("c", "lonely", 1, "127.0.0.1:2"), {"storeShortages": "memory"})
    found = find_trouble([slave, dead], None, NOW_MS)
    assert [each.urgent for each in found] == [True, True, False]
    assert "no master" in " ".join(each.text for each in found)
    assert "No broker is registered" in find_trouble([], None, NOW_MS)[0].text


def test_groups_with_large_lag_are_listed_worst_first() -> None:
    lags = [Lag(f"g-{number}", "t", LAG_MESSAGES + number, NOW_MS) for number in range(1, 9)]
    old = Lag("old", "t", 1, NOW_MS - 7_200_000)
    texts = [each.text for each in find_trouble([status()], snapshot(*lags, old), NOW_MS)]
    assert "Group g-8 is 10,008 messages behind on t." in texts[0]
    assert "4 more groups" in texts[-1]
    (text,) = (each.text for each in find_trouble([status()], snapshot(old), NOW_MS))
    assert "by up to 2 h" in text


@given(st.text(max_size=20))
def test_every_text_of_a_size_is_read(text: str) -> None:
    assert as_bytes(text) >= 0 or "-" in text


# --- settings


def test_settings_of_a_rocketmq_broker_may_all_change() -> None:
    rows = {
        row.key: row
        for row in compare(
            {"brokerPermission": "4", "unknownHere": "1", "aSecretKey": "x"}, is_congreve=False
        )
    }
    assert rows["brokerPermission"].differs and rows["brokerPermission"].change == "now"
    assert rows["unknownHere"].default is None and not rows["unknownHere"].differs
    assert rows["aSecretKey"].value == "(not shown)"


# --- traces


def test_traces_of_all_kinds_are_read() -> None:
    sent = ("Pub", 100, "r", "p", "t", "id", "tag", "key", "h:1", 5, 7, 0)
    body = "".join(
        (
            trace_record(*sent, "offset-id", True),
            trace_record(*sent, False),
            trace_record("SubBefore", 200, "r", "g", "request", "id", 2, "key"),
            trace_record("SubAfter", "request", "id", 9, True, "key", 0, 210, "g"),
            trace_record("SubAfter", "request", "id", 9, False, "key", 0),
            trace_record(
                *("EndTransaction", 300, "r", "p", "t", "id", "tag", "key", "h:1", 2, "tx"),
                *("COMMIT_MESSAGE", False),
            ),
            trace_record("Unknown", 1),
            trace_record("Pub", "x"),
        )
    )
    events = read_trace(body.encode())
    assert [(each.kind, each.at_ms, each.is_success) for each in events] == [
        ("Pub", 100, True),
        ("Pub", 100, False),
        ("SubBefore", 200, None),
        ("SubAfter", 210, True),
        ("SubAfter", 0, False),
        ("EndTransaction", 300, None),
    ]
    assert events[2].retries == 2 and events[5].state == "COMMIT_MESSAGE"


@given(st.binary(max_size=300))
def test_any_body_of_a_trace_is_read_without_an_error(body: bytes) -> None:
    read_trace(body)


# --- audit lines


def test_audit_lines_are_read_from_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    line = {"time": 1, "accessKey": "a", "request": "DELETE_TOPIC_IN_BROKER", "fields": {}}
    lines = ["plain text", "{broken", '{"other": 1}', "[1]"]
    lines += [json.dumps(line | {"time": number}) for number in range(LINES_MAX + 5)]
    log.write_text("\n".join(lines))
    found = broker_lines(log)
    assert len(found) == LINES_MAX
    assert found[0]["time"] == LINES_MAX + 4
    with pytest.raises(OSError):
        broker_lines(tmp_path / "none")


# --- what is due


def test_levels_are_read_from_a_brokers_figures() -> None:
    figures = {"scheduleMessageOffset_3": "5,9", "scheduleMessageOffset_x": "1", "other": "1,2"}
    assert _of_figures(figures) == {3: 4, 0: 0}


def test_pending_messages_have_a_bar_for_each_hour_or_day() -> None:
    def counts(*hours: int) -> DelayedCounts:
        rows = [DelayedCount(hour_ms=hour * HOUR_MS, level=hour % 3, count=2) for hour in hours]
        return DelayedCounts(counts=rows, is_complete=False)

    empty = histogram(DelayedCounts())
    assert (empty.bars, empty.total, empty.is_complete) == ([], 0, True)
    near = histogram(counts(10, 10, 12))
    assert [(bar.begin_ms // HOUR_MS, bar.count) for bar in near.bars] == [
        (10, 4),
        (11, 0),
        (12, 2),
    ]
    assert [bar.height for bar in near.bars] == [1, 0, 0.5]
    assert near.total == 6 and not near.is_complete
    far = histogram(counts(0, 25, 24 * BARS_MAX * 2))
    assert far.span_ms == 24 * HOUR_MS and len(far.bars) == BARS_MAX
    assert [bar.count for bar in far.bars if bar.count] == [2, 2, 2]


# --- memory


def test_the_console_and_its_page_of_settings_load_no_numpy() -> None:
    code = (
        "import sys; import congreve.console.web.serving.server;"
        "from congreve.console.web.broker_settings import compare;"
        "assert compare({'listenPort': '1'}, is_congreve=True)[0].default == '10911';"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the console's own audit file


def test_the_audit_page_has_the_newest_entries_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    first = ConsoleAudit(path, clock=lambda: 1.0)
    first.note_for("ops", "127.0.0.1", "deleted topic", "T")
    first.note_for("ops", "127.0.0.1", "deleted group", "G")
    with path.open("ab") as file:
        file.write(b'{"at_ms":1,"us')  # a crash while it wrote
    again = ConsoleAudit(path)
    assert [entry.action for entry in again.entries()] == ["deleted group", "deleted topic"]
    assert path.stat().st_mode & 0o777 == 0o600
