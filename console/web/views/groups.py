"""Consumer groups: the list, one group with queues and members, and changes of offsets."""

import asyncio
import time
from collections.abc import Iterable

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from congreve.base.errors import CongreveError
from congreve.client.admin.groups import OffsetTarget, QueueReset
from congreve.client.errors import InvalidSettingError
from congreve.console.web.cluster import Cluster
from congreve.console.web.formats import count, moment, path_part
from congreve.console.web.pages import Visit, window
from congreve.console.web.snapshot import GroupRow
from congreve.console.web.views.messages import default_period, time_ms
from congreve.records.message.topics import is_system_group
from congreve.remoting.messages.admin_bodies import Connection, SubscriptionData

_ORDERS = {
    "name": lambda row: row.name,
    "lag": lambda row: (-row.lag, row.name),
    "age": lambda row: (row.since_ms or 1 << 63, row.name),
}


class Members(msgspec.Struct):
    """The connected members of a group on all brokers."""

    clients: list[Connection]
    subscriptions: dict[str, SubscriptionData]
    model: str
    kind: str


async def groups(visit: Visit) -> Response:
    """A list with filters, without a request for each group."""
    snapshot = await visit.cluster.snapshot()
    wanted, order = visit.query("q"), visit.query("sort", "lag")
    only_behind = visit.query("behind") == "1"
    has_system = visit.query("system") == "1"
    rows = [
        row
        for row in snapshot.groups.values()
        if wanted.lower() in row.name.lower()
        and (row.lag or not only_behind)
        and (has_system or not is_system_group(row.name))
    ]
    rows.sort(key=_ORDERS.get(order, _ORDERS["lag"]))
    return visit.page(
        "groups/groups.html",
        window=window(rows, visit.query("page", "1")),
        q=wanted,
        sort=order,
        behind=only_behind,
        system=has_system,
        namesrv=visit.cluster.namesrv,
        snapshot=snapshot,
        now_ms=int(time.time() * 1000),
    )


async def group(visit: Visit) -> Response:
    """One group."""
    name = visit.path("group")
    row = await _row(visit, name)
    queues, members = await asyncio.gather(
        visit.cluster.admin.groups.lag(name),
        read_members(visit.cluster, name),
    )
    return visit.page(
        "groups/group.html",
        row=row,
        queues=queues,
        members=members,
        period=default_period(),
        lag=sum(each.lag for each in queues),
        pops=any(each.in_flight is not None for each in queues),
        without_order=sorted({each.topic for each in queues if each.without_order}),
        oldest_ms=max((each.lag_ms for each in queues if each.lag), default=0),
    )


async def read_members(cluster: Cluster, group: str) -> Members | None:
    """The members on all brokers, None if none is connected."""
    found: dict[str, Connection] = {}
    members: Members | None = None
    for reports in (await cluster.masters()).values():
        answer = await reports.members(group)
        if answer is None:
            continue
        found |= {each.client_id: each for each in answer.connection_set}
        members = Members(
            sorted(found.values(), key=lambda each: each.client_id),
            answer.subscription_table,
            answer.message_model.lower(),
            "push" if answer.consume_type == "CONSUME_PASSIVELY" else "pull",
        )
    return members


async def preview_reset(visit: Visit) -> Response:
    """What a reset would do, with a button that does it."""
    name, topic, target = _wanted_reset(visit)
    rows = await visit.cluster.admin.groups.reset(name, topic, target, preview=True)
    return visit.page(
        "groups/reset.html",
        group=name,
        topic=topic,
        to=visit.field("to"),
        time=visit.field("time"),
        target=target,
        rows=rows,
        skipped=skipped(rows),
        repeated=repeated(rows),
    )


async def reset(visit: Visit) -> Response:
    """Move the offsets."""
    name, topic, target = _wanted_reset(visit)
    rows = await visit.cluster.admin.groups.reset(name, topic, target)
    visit.cluster.changed()
    where = moment(target) if isinstance(target, int) else f"the {target} message"
    what = (
        f"{name} on {topic} to {where}: {count(skipped(rows))} messages skipped, "
        f"{count(repeated(rows))} repeated"
    )
    return visit.done("reset offsets", what, f"/groups/{path_part(name)}")


def skipped(rows: Iterable[QueueReset]) -> int:
    """Messages that a reset leaves out; a group without an offset (-1) skips none."""
    return sum(max(row.after - row.before, 0) for row in rows if row.before >= 0)


def repeated(rows: Iterable[QueueReset]) -> int:
    """Messages that a reset gives to the group again."""
    return sum(max(row.before - row.after, 0) for row in rows)


async def delete_group(visit: Visit) -> Response:
    """Delete a group and its offsets on all masters, once the user has typed its name."""
    name = visit.path("group")
    if visit.field("confirm") != name:
        raise InvalidSettingError(f"type the group's name, {name}, to delete it")
    await _row(visit, name)
    await visit.cluster.admin.groups.delete(name, with_offsets=True)
    visit.cluster.changed()
    return visit.done("deleted group", name, "/groups")


def _wanted_reset(visit: Visit) -> tuple[str, str, OffsetTarget]:
    """The group, the topic, and where to. Raises InvalidSettingError."""
    topic = visit.field("topic")
    if not topic:
        raise InvalidSettingError("choose a topic")
    target: OffsetTarget
    match visit.field("to"):
        case "first":
            target = "first"
        case "last":
            target = "last"
        case _:
            target = time_ms(visit.field("time"))
    return visit.path("group"), topic, target


async def _row(visit: Visit, name: str) -> GroupRow:
    row = await visit.cluster.group(name)
    if row is None:
        raise HTTPException(404, f"There is no group {name}.")
    return row


async def running_info(visit: Visit) -> Response:
    """The running info of one member: rates, cached messages, and its threads."""
    name, client_id = visit.path("group"), visit.path("client")
    errors = []
    for reports in (await visit.cluster.masters()).values():
        try:
            info = await reports.running_info(name, client_id)
        except CongreveError as error:
            errors.append(str(error))
            continue
        return visit.page("groups/member.html", group=name, client_id=client_id, info=info)
    raise HTTPException(404, "; ".join(errors) or f"{client_id} is not connected.")
