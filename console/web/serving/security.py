"""What protects the console in a browser: response headers, host names, forms and cookies."""

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from congreve.console.web.serving.sessions import COOKIE, LIFETIME_S

CSRF_FIELD = "csrf"
FORM_MAX = 8 << 20
"""Bytes of a form: an edited message is the largest."""
SMALL_FORM_MAX = 64 << 10
"""Bytes of a form before a login, and of one that takes no room of others."""
FORMS_MAX = 32 << 20
"""Bytes of all forms that are being read."""
FORM_S = 30.0
"""Seconds in which a form must be complete."""
FIELDS_MAX = 5_000

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


_HOST = re.compile(r"(?:(?P<name>[\w.-]+)|\[(?P<address>[0-9a-fA-F:.]+)\])(?::\d+)?", re.ASCII)


class SecureHeaders:
    """Refuses requests for unknown host names, and adds HEADERS to each answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if host_name(Headers(scope=scope).get("host", "")) in self._hosts:
            await self._app(scope, receive, send_with_headers)
            return
        refusal = PlainTextResponse("This host name is not allowed: see --allow-host.\n", 421)
        await refusal(scope, receive, send_with_headers)


def host_name(host: str) -> str:
    """The name of a Host header, in lower case and without the port; empty if malformed."""
    found = _HOST.fullmatch(host)
    return (found["name"] or found["address"]).lower() if found else ""


def check_origin(request: Request) -> None:
    """Raises HTTPException 403 if a browser says that another site sent the request."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    other = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    if site not in ("same-origin", "none") or other:
        raise HTTPException(403, "This form was sent from another site.")


def check_fetch(request: Request) -> None:
    """Raises HTTPException 403 if another site loads a page without showing it to the user.

    Links from elsewhere may lead to the console.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    shown = request.headers.get("sec-fetch-dest", "document") == "document"
    if site not in ("same-origin", "none") and not shown:
        raise HTTPException(403, "This page was asked for by another site.")


class FormRoom:
    """The memory of all forms that are being read."""

    def __init__(self) -> None:
        self.held = 0
        """Bytes of forms beyond SMALL_FORM_MAX."""

    def grow(self, before: int, after: int) -> None:
        """Note that a form has grown. Raises HTTPException 503 if there is no room."""
        self.held += max(after - SMALL_FORM_MAX, 0) - max(before - SMALL_FORM_MAX, 0)
        if self.held > FORMS_MAX and after > before:
            raise HTTPException(503, "Other large forms are being read: send it again later.")


async def read_form(
    request: Request, room: FormRoom, most: int = FORM_MAX
) -> Mapping[str, list[str]]:
    """The fields of a form (application/x-www-form-urlencoded).

    Raises HTTPException 413 if it has more than `most` bytes, 415 for another type, 400 if it
    cannot be read, 408 if it is not complete in time, 503 without room.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, f"A form is expected, not {kind or 'nothing'}.")
    body = bytearray()
    try:
        async with asyncio.timeout(FORM_S):
            async for chunk in request.stream():
                body += chunk
                room.grow(len(body) - len(chunk), len(body))
                if len(body) > most:
                    raise HTTPException(413, f"The form has more than {most:,} bytes.")
        return parse_qs(
            body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except TimeoutError as error:
        raise HTTPException(408, f"The form is not complete after {FORM_S:g} s.") from error
    except ValueError as error:
        raise HTTPException(400, f"The form cannot be read: {error}.") from error
    finally:
        room.grow(len(body), 0)


def set_session_cookie(response: Response, session_id: str, *, secure: bool) -> None:
    """Give the browser a session's id: not readable for scripts, not sent by other sites."""
    response.set_cookie(
        COOKIE,
        session_id,
        max_age=int(LIFETIME_S),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
