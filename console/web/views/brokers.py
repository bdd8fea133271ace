"""Brokers: figures, settings, and the result of `congreve tune`."""

import asyncio
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from congreve.base.errors import CongreveError
from congreve.client.errors import InvalidSettingError
from congreve.console.web import broker_settings
from congreve.console.web.cluster import BrokerStatus
from congreve.console.web.formats import path_part
from congreve.console.web.pages import Visit

VALUE_MAX = 4_096
PICTURE = Path("congreve", "tuned.png")


async def brokers(visit: Visit) -> Response:
    """The list, with slaves."""
    return visit.page("brokers/brokers.html", statuses=await visit.cluster.statuses())


async def broker(visit: Visit) -> Response:
    """One broker: figures and settings."""
    name = visit.path("broker")
    statuses = [each for each in await visit.cluster.statuses() if each.broker.name == name]
    if not statuses:
        raise HTTPException(404, f"No broker {name} is registered.")
    rows, error = [], None
    try:
        rows = await _settings(visit, name, statuses)
    except CongreveError as failure:
        error = str(failure)
    different_only = visit.query("all") != "1"
    edited = visit.query("edit")
    return visit.page(
        "brokers/broker.html",
        name=name,
        statuses=statuses,
        rows=[row for row in rows if row.differs or not different_only],
        total=len(rows),
        different_only=different_only,
        edited=broker_settings.find(rows, edited) if edited else None,
        error=error,
        is_congreve=_is_congreve(statuses),
    )


async def save_setting(visit: Visit) -> Response:
    """Change one setting of a broker."""
    name, key = visit.path("broker"), visit.field("key")
    value = visit.field("value")
    if not key.isidentifier() or len(value) > VALUE_MAX or not value.isprintable():
        raise InvalidSettingError(f"{key[:100]!r}: a name and one line of text are expected")
    reports = await visit.cluster.master(name)
    remark = await reports.update_settings({key: value})
    what = f"{key} = {value} on {name}" + (f" ({remark})" if remark else "")
    return visit.done("changed setting", what, f"/brokers/{path_part(name)}?all=1")


async def tuned(visit: Visit) -> Response:
    """What `congreve tune` measured and chose for the store of --store."""
    store = visit.options.store
    values: dict[str, Any] = {"store": store, "tuned": None, "error": None}
    values["picture"] = store is not None and (store / PICTURE).is_file()
    if store is not None:
        try:
            values |= await asyncio.to_thread(_tuned, str(store))
        except CongreveError as error:
            values["error"] = str(error)
    return visit.page("brokers/tuned.html", **values)


def _tuned(store: str) -> dict[str, Any]:
    """The saved result, whether the machine was busy, and what of it has changed since.

    Raises CongreveError.
    """
    from congreve.console.tune.choice import is_busy
    from congreve.engine.state.tuned import load_tuned, machine_of

    found = load_tuned(store)
    changes: list[str] = []
    if found is not None and found.machine is not None:
        changes = found.machine.differences(machine_of(store))
    return {"tuned": found, "changes": changes, "busy": found is not None and is_busy(found)}


async def tuned_picture(visit: Visit) -> Response:
    """The plot of `congreve tune`."""
    store = visit.options.store
    if store is None or not (store / PICTURE).is_file():
        raise HTTPException(404, "There is no picture: run `congreve tune`.")
    return FileResponse(store / PICTURE, media_type="image/png")


async def _settings(
    visit: Visit, name: str, statuses: list[BrokerStatus]
) -> list[broker_settings.SettingRow]:
    values = await (await visit.cluster.master(name)).settings()
    return await asyncio.to_thread(
        broker_settings.compare, values, is_congreve=_is_congreve(statuses)
    )


def _is_congreve(statuses: list[BrokerStatus]) -> bool:
    """Whether the broker's report has a figure that RocketMQ's has not."""
    return any("ioBackend" in each.figures for each in statuses)
