"""What protects the console in a browser: response headers, host names, forms and cookies."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from congreve.console.web.sessions import COOKIE, LIFETIME_S

CSRF_FIELD = "csrf"
FORM_MAX = 8 << 20
"""Bytes of a form: an edited message is the largest."""
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


async def read_form(request: Request) -> Mapping[str, list[str]]:
    """The fields of a form (application/x-www-form-urlencoded).

    Raises HTTPException 413 if it is too large, 415 for another type, 400 if it cannot be read.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, f"A form is expected, not {kind or 'nothing'}.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_MAX:
            raise HTTPException(413, f"The form has more than {FORM_MAX:,} bytes.")
    try:
        return parse_qs(
            body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except ValueError as error:
        raise HTTPException(400, f"The form cannot be read: {error}.") from error


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
