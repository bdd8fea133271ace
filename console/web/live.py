"""Server-sent events: parts of a page that change while it is open."""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

EVENT_STREAM = "text/event-stream"
STREAM_S = 600.0
"""A stream ends after this time; the browser connects again, and the session is checked again."""


def event(html: str, name: str = "message") -> str:
    """One event with some HTML."""
    lines = "".join(f"data: {line}\n" for line in html.splitlines())
    return f"event: {name}\n{lines}\n"


def event_stream(events: AsyncIterator[str]) -> Response:
    """The answer that sends these events."""
    return StreamingResponse(events, media_type=EVENT_STREAM)


async def pause(stopping: asyncio.Event, seconds: float) -> bool:
    """Wait; returns whether the server stops."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return False
    return True
