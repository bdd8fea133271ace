"""The problems of a cluster, as sentences."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from congreve.console.web.cluster import BrokerStatus, decimal, number
from congreve.console.web.formats import count, duration, path_part, size
from congreve.console.web.snapshot import Snapshot

DISK_BAD, DISK_HIGH = 0.90, 0.75
FLUSH_BEHIND_BYTES = 64 << 20
SLAVE_BEHIND_BYTES = 64 << 20
QUEUE_WAIT_MS = 1_000
PUT_P99_MS = 500.0
LAG_MESSAGES = 10_000
LAG_S = 600.0
GROUPS_MAX = 5
LOG_END = "commitLogMaxOffset"

_UNITS = {"B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_UNITS |= {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


class Trouble(msgspec.Struct, frozen=True):
    """One sentence, the page that shows more, and whether messages are at risk now."""

    text: str
    href: str
    urgent: bool = False


def find_trouble(
    statuses: Iterable[BrokerStatus], snapshot: Snapshot | None, now_ms: int
) -> list[Trouble]:
    """All sentences, urgent ones first."""
    statuses = list(statuses)
    found = list(_brokers_without_master(statuses))
    for status in statuses:
        found += _of_broker(status)
    found += _of_slaves(statuses)
    if snapshot is not None:
        for name, error in snapshot.failures.items():
            text = f"Topics and groups of broker {name} could not be read: {error}"
            found.append(Trouble(text, f"/brokers/{path_part(name)}"))
        found += _of_groups(snapshot, now_ms)
    return sorted(found, key=lambda each: not each.urgent)


def _brokers_without_master(statuses: list[BrokerStatus]) -> Iterator[Trouble]:
    masters: dict[str, bool] = defaultdict(bool)
    for status in statuses:
        masters[status.broker.name] |= status.broker.is_master
    for name, has_master in masters.items():
        if not has_master:
            yield Trouble(
                f"Broker {name} has no master: it takes no messages.", "/brokers", urgent=True
            )
    if not statuses:
        yield Trouble("No broker is registered at the name server.", "/brokers", urgent=True)


def _of_broker(status: BrokerStatus) -> Iterator[Trouble]:
    broker, figures = status.broker, status.figures
    name = f"Broker {broker.name} ({broker.address})"
    href = f"/brokers/{path_part(broker.name)}"
    if status.error is not None:
        what = "does not report its figures" if status.is_refused else "does not answer"
        yield Trouble(f"{name} {what}: {status.error}", href, urgent=not status.is_refused)
        return
    for key, what in (
        ("storeWritable", "takes no messages"),
        ("stateFilesWritable", "cannot save topics, groups and offsets"),
    ):
        state = figures.get(key, "true")
        if state.startswith("false"):
            yield Trouble(f"{name} {what}: {state[5:].strip(' ()')}.", href, urgent=True)
    shortages = figures.get("storeShortages", "none")
    if shortages != "none":
        yield Trouble(f"{name} is short of resources: {shortages}.", href)
    damaged = number(figures.get("logDamaged"))
    if damaged:
        where = f"{damaged} parts of the log" if damaged > 1 else "A part of the log"
        repairs = figures.get("haRepairs", "none")
        text = f"{where} of {name} cannot be read; brokers that could repair it: {repairs}."
        yield Trouble(text, href, urgent=repairs.startswith("none"))
    used = status.disk_used or 0.0
    if used >= DISK_HIGH:
        text = f"The disk of {name} is {used:.0%} full: free space, or lower fileReservedTime."
        yield Trouble(text, href, urgent=used >= DISK_BAD)
    behind = as_bytes(figures.get("remainHowManyDataToFlush"))
    if behind > FLUSH_BEHIND_BYTES:
        yield Trouble(f"{name} has {size(behind)} that are not on disk yet.", href)
    waited = number(figures.get("sendThreadPoolQueueHeadWaitTimeMills"))
    if waited > QUEUE_WAIT_MS:
        yield Trouble(f"Sends to {name} wait for {duration(waited / 1000)}.", href, urgent=True)
    slow = decimal(figures.get("putLatency99"))
    if slow > PUT_P99_MS:
        yield Trouble(f"1 % of the sends to {name} take {slow:,.0f} ms or more.", href)


def _of_slaves(statuses: list[BrokerStatus]) -> Iterator[Trouble]:
    log_ends = {
        status.broker.name: number(status.figures.get(LOG_END))
        for status in statuses
        if status.broker.is_master
    }
    for status in statuses:
        broker, figures = status.broker, status.figures
        href = f"/brokers/{path_part(broker.name)}"
        if broker.is_master:
            if figures.get("brokerRole") == "SYNC_MASTER" and figures.get("haSlaves") == "none":
                text = f"Broker {broker.name} has no slave: with SYNC_MASTER no send gets SEND_OK."
                yield Trouble(text, href, urgent=True)
            continue
        name = f"Slave {broker.id} of broker {broker.name} ({broker.address})"
        follows = figures.get("haMaster", "")
        if follows.startswith("none"):
            why = follows[4:].strip(" ()")
            yield Trouble(f"{name} follows no master{': ' * bool(why)}{why}.", href)
        behind = log_ends.get(broker.name, 0) - number(figures.get(LOG_END))
        if LOG_END in figures and behind > SLAVE_BEHIND_BYTES:
            yield Trouble(f"{name} is {size(behind)} behind its master.", href)


def _of_groups(snapshot: Snapshot, now_ms: int) -> Iterator[Trouble]:
    behind = [
        (row.lag, since_s, row)
        for group in snapshot.groups.values()
        for row in group.topics
        if row.lag
        and (
            (since_s := (now_ms - row.since_ms) / 1000 if row.since_ms else 0.0) > LAG_S
            or row.lag > LAG_MESSAGES
        )
    ]
    behind.sort(key=lambda each: (-each[0], each[2].group))
    for lag, since_s, row in behind[:GROUPS_MAX]:
        age = f", by up to {duration(since_s)}" if since_s else ""
        yield Trouble(
            f"Group {row.group} is {count(lag)} messages behind on {row.topic}{age}.",
            f"/groups/{path_part(row.group)}",
        )
    if len(behind) > GROUPS_MAX:
        more = len(behind) - GROUPS_MAX
        yield Trouble(f"{count(more)} more groups are as far behind.", "/groups?sort=lag")


def as_bytes(text: str | None) -> int:
    """The bytes of a text such as `12.5 MiB`, 0 if it is none."""
    parts = (text or "").split()
    if len(parts) != 2 or parts[1].upper() not in _UNITS:
        return 0
    return int(decimal(parts[0]) * _UNITS[parts[1].upper()])
