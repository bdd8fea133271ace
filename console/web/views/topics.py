"""The list of topics with the lag of their groups, one topic, and changes of topics."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.responses import Response

from congreve.client.checks import check_topic
from congreve.client.errors import InvalidSettingError
from congreve.client.message import Message
from congreve.console.topic_kinds import KINDS
from congreve.console.web.formats import path_part
from congreve.console.web.pages import Visit, window
from congreve.console.web.snapshot import TopicRow
from congreve.records.message.topics import AUTO_CREATE_TOPIC_KEY_TOPIC
from congreve.remoting.messages.admin_headers import CreateTopicRequestHeader
from congreve.remoting.messages.codes import RequestCode

QUEUES_MAX = 65_535
PERMISSIONS = {"6": "read and write", "4": "read only", "2": "write only"}
GROUP = "CONGREVE_CONSOLE"
"""The producer group of test messages."""

_ORDERS = {
    "name": lambda row: row.name,
    "lag": lambda row: (-row.lag, row.name),
    "groups": lambda row: (-len(row.groups), row.name),
    "queues": lambda row: (-row.read_queues, row.name),
}


async def topics(visit: Visit) -> Response:
    """A list with filters, without a request for each topic."""
    snapshot = await visit.cluster.snapshot()
    wanted, kind = visit.query("q"), visit.query("kind", KINDS[0])
    order = visit.query("sort", "name")
    rows = [
        row
        for row in snapshot.topics.values()
        if kind in (row.kind, "all") and wanted.lower() in row.name.lower()
    ]
    rows.sort(key=_ORDERS.get(order, _ORDERS["name"]))
    counts = dict.fromkeys(KINDS, 0)
    for row in snapshot.topics.values():
        counts[row.kind] += 1
    shown = window(rows, visit.query("page", "1"))
    return visit.page(
        "topics/topics.html",
        window=shown,
        figures=await visit.cluster.figures.of(shown.rows, await visit.cluster.masters()),
        q=wanted,
        kind=kind,
        sort=order,
        counts=counts,
        snapshot=snapshot,
        namesrv=visit.cluster.namesrv,
    )


async def topic(visit: Visit) -> Response:
    """One topic: queues, brokers, groups and actions."""
    name = visit.path("topic")
    row = await _row(visit, name)
    queues, route = await asyncio.gather(
        visit.cluster.admin.topic_stats(name), visit.cluster.admin.topic_route(name)
    )
    return visit.page(
        "topics/topic.html",
        row=row,
        queues=queues,
        route=route,
        stored=sum(each.max_offset - each.min_offset for each in queues),
        permissions=PERMISSIONS,
    )


async def save_topic(visit: Visit) -> Response:
    """Create a topic, or change its queues and permission, on chosen brokers."""
    name = visit.field("topic")
    check_topic(name)
    read, write = (_queues(visit, field) for field in ("read_queues", "write_queues"))
    perm = visit.field("perm", "6")
    if perm not in PERMISSIONS:
        raise InvalidSettingError(f"permission {perm!r}: 2, 4 or 6 is expected")
    header = CreateTopicRequestHeader(
        topic=name,
        default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
        read_queue_nums=read,
        write_queue_nums=write,
        perm=int(perm),
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=visit.field("order") == "on",
    )
    for reports in (await visit.cluster.masters()).values():
        await visit.cluster.admin.demand(
            reports.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header.fields()
        )
    visit.cluster.changed()
    return visit.done("saved topic", f"{name}, {read} read and {write} write queues", "/topics")


def _queues(visit: Visit, field: str) -> int:
    text = visit.field(field, "8")
    if not text.isdecimal() or not text.isascii() or not 1 <= int(text[:6]) <= QUEUES_MAX:
        raise InvalidSettingError(f"{text!r} queues: 1 to {QUEUES_MAX} are expected")
    return int(text)


async def delete_topic(visit: Visit) -> Response:
    """Delete a topic on all masters, once the user has typed its name."""
    name = visit.path("topic")
    if visit.field("confirm") != name:
        raise InvalidSettingError(f"type the topic's name, {name}, to delete it")
    row = await _row(visit, name)
    if row.kind == "system":
        raise InvalidSettingError(f"topic {name} belongs to the brokers: it cannot be deleted")
    for cluster in sorted({each.cluster for each in await visit.cluster.brokers()}):
        await visit.cluster.admin.delete_topic(name, cluster=cluster)
    visit.cluster.changed()
    return visit.done("deleted topic", name, "/topics")


async def send_message(visit: Visit) -> Response:
    """Send one message to a topic."""
    from congreve.client.producer.producer import Producer

    name = visit.path("topic")
    await _row(visit, name)
    body = visit.form.get("body", [""])[0].replace("\r\n", "\n")
    message = Message(
        topic=name,
        body=body.encode(),
        tags=visit.field("tags") or None,
        keys=visit.field("keys") or None,
    )
    async with Producer(
        visit.cluster.namesrv,
        group=GROUP,
        credentials=visit.cluster.credentials,
        ssl=visit.options.ssl,
    ) as producer:
        result = await producer.send(message)
    what = f"{result.message_id} to {name}"
    return visit.done("sent message", what, f"/topics/{path_part(name)}")


async def _row(visit: Visit, name: str) -> TopicRow:
    row = await visit.cluster.topic(name)
    if row is None:
        raise HTTPException(404, f"There is no topic {name}.")
    return row
