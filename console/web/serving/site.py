"""The web console as an ASGI application: routes, checks before each handler, errors."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from congreve.base.errors import CongreveError
from congreve.client.errors import BrokerError, BrokerNotFoundError, ClientError, RouteNotFoundError
from congreve.console.web import views
from congreve.console.web.audit import ConsoleAudit
from congreve.console.web.options import Options
from congreve.console.web.pages import STATIC, Pages, Visit, redirect, url
from congreve.console.web.serving.gate import Gate, LoginError
from congreve.console.web.serving.security import (
    CSRF_FIELD,
    FORM_MAX,
    SMALL_FORM_MAX,
    FormRoom,
    SecureHeaders,
    check_fetch,
    check_origin,
    read_form,
    set_session_cookie,
)
from congreve.console.web.serving.sessions import COOKIE, new_id

Handler = Callable[[Visit], Awaitable[Response]]


class Site:
    """The application and what it shares; `stopping` ends live pages when the server stops."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.gate = Gate(options)
        self.audit = ConsoleAudit(options.audit_log)
        self.pages = Pages(options, self.audit)
        self.stopping = asyncio.Event()
        self._forms = FormRoom()
        app = Starlette(
            routes=self._routes(),
            exception_handlers={
                HTTPException: self._http_error,
                CongreveError: self._refused,
                Exception: self._failed,
            },
            lifespan=self._lifespan,
        )
        # Outside of Starlette's own error page, which so has the headers, too.
        self.app: ASGIApp = SecureHeaders(app, options.allowed_hosts)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.pages.start()
        await self.gate.start()
        try:
            yield
        finally:
            await self.gate.stop()

    def _routes(self) -> list[BaseRoute]:
        return [
            Mount("/static", _CachedFiles(directory=STATIC)),
            Route("/login", self._login_page, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            *(Route(path, self._get(handler)) for path, handler in views.PAGES.items()),
            *(
                Route(path, self._post(handler), methods=["POST"])
                for path, handler in {**views.ACTIONS, "/logout": self._logout}.items()
            ),
        ]

    # --- requests

    def _get(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            check_fetch(request)
            return await self._serve(request, handler, {})

        return serve

    def _post(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            form = await self._checked_form(request)
            return await self._serve(request, handler, form)

        return serve

    async def _serve(
        self, request: Request, handler: Handler, form: Mapping[str, list[str]]
    ) -> Response:
        known = request.cookies.get(COOKIE)
        session_id = known or new_id()
        found = await self.gate.cluster(session_id)
        if found is None:
            here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return redirect("/login", next=here if request.method == "GET" else None)
        cluster, access_key = found
        visit = Visit(
            request,
            self.pages,
            cluster,
            session_id=session_id,
            access_key=access_key,
            csrf=self.gate.sessions.csrf_token(session_id),
            form=form,
            stopping=self.stopping,
        )
        response = await handler(visit)
        if known is None:
            set_session_cookie(response, session_id, secure=self.options.secure)
        return response

    async def _checked_form(self, request: Request) -> Mapping[str, list[str]]:
        """The fields of a form with the session's token. Raises HTTPException without it."""
        check_origin(request)
        session_id = request.cookies.get(COOKIE, "")
        may_enter = session_id and await self.gate.cluster(session_id) is not None
        form = await read_form(request, self._forms, FORM_MAX if may_enter else SMALL_FORM_MAX)
        token = form.get(CSRF_FIELD, [""])[0]
        if not session_id or not self.gate.sessions.is_csrf_token(session_id, token):
            raise HTTPException(403, "The form is out of date: load the page again.")
        return form

    # --- login

    async def _login_page(self, request: Request) -> Response:
        return self._login_form(request, request.query_params.get("next", ""))

    def _login_form(
        self, request: Request, following: str, error: str = "", status: int = 200
    ) -> Response:
        session_id = request.cookies.get(COOKIE) or new_id()
        csrf = self.gate.sessions.csrf_token(session_id)
        values = {"csrf": csrf, "following": local_path(following), "error": error}
        response = HTMLResponse(self.pages.text("login.html", values), status)
        set_session_cookie(response, session_id, secure=self.options.secure)
        return response

    async def _login(self, request: Request) -> Response:
        form = await self._checked_form(request)
        access_key = form.get("access_key", [""])[0].strip()
        following = form.get("next", [""])[0]
        address = request.client.host if request.client else "-"
        try:
            session = await self.gate.login(
                access_key, form.get("secret_key", [""])[0].strip(), address
            )
        except LoginError as error:
            self.audit.note_for(access_key[:100], address, "login refused", "")
            response = self._login_form(request, following, str(error), error.status)
            if error.wait_s:
                response.headers["retry-after"] = str(int(error.wait_s) + 1)
            return response
        await self.gate.logout(request.cookies.get(COOKIE, ""))
        self.audit.note_for(access_key, address, "logged in", "")
        response = redirect(local_path(following))
        # A new id: one that was known before the login must not become the user's.
        set_session_cookie(response, session.id, secure=self.options.secure)
        return response

    async def _logout(self, visit: Visit) -> Response:
        self.audit.note(visit, "logged out", "")
        await self.gate.logout(visit.request.cookies.get(COOKIE, ""))
        response = redirect("/login")
        response.delete_cookie(COOKIE, path="/")
        return response

    # --- errors

    def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = error.detail
        if text == HTTPStatus(error.status_code).phrase:  # Starlette's, without a reason
            text = f"The console has no page {request.url.path} for {request.method}."
        return self._error_page(request, error.status_code, text)

    def _refused(self, request: Request, error: Exception) -> Response:
        status = 502
        if isinstance(error, RouteNotFoundError | BrokerNotFoundError):
            status = 404
        elif isinstance(error, BrokerError) and "AclException" in (error.remark or ""):
            status = 403
        elif isinstance(error, ClientError):
            status = 400 if request.method == "POST" else 502
        return self._error_page(request, status, str(error))

    def _failed(self, request: Request, error: Exception) -> Response:
        # Starlette raises the error again, and the server logs it.
        return self._error_page(request, 500, "The console failed: its log has the reason.")

    def _error_page(self, request: Request, status: int, text: str) -> Response:
        values = {"path": request.url.path, "status": status, "text": text}
        return HTMLResponse(self.pages.text("error.html", values), status)


class _CachedFiles(StaticFiles):
    """Static files, whose URLs have the version: browsers keep them."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def local_path(text: str) -> str:
    """A path of this console from a URL's parameter; `/` for every other text."""
    if not text.startswith("/") or text.startswith(("//", "/\\")) or not text.isprintable():
        return "/"
    return url(text)
