"""The audit log: changes that users made here, and the audit lines of the broker's log."""

import asyncio
from typing import Any

from starlette.responses import Response

from congreve.console.web.audit import broker_lines
from congreve.console.web.pages import Visit, window

ROWS = 100


async def audit(visit: Visit) -> Response:
    """Both logs, newest first."""
    path = visit.options.broker_log
    lines: list[dict[str, Any]] = []
    error = None
    if path is not None:
        try:
            lines = await asyncio.to_thread(broker_lines, path)
        except OSError as failure:
            error = f"{path} cannot be read: {failure.strerror}"
    return visit.page(
        "audit.html",
        window=window(visit.audit.entries(), visit.query("page", "1"), ROWS),
        broker_log=path,
        lines=lines[:ROWS],
        error=error,
    )
