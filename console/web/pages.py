"""Templates, and what every page needs: the visit of a user."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from congreve.base.version import __version__
from congreve.console.web import formats
from congreve.console.web.audit import ConsoleAudit
from congreve.console.web.cluster import Cluster
from congreve.console.web.lake_tables import LakeTables
from congreve.console.web.options import Options

FOLDER = Path(__file__).parent
TEMPLATES = FOLDER / "templates"
STATIC = FOLDER / "static"

NOTICES_MAX = 1_000

MENU = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/messages", "Messages"),
    ("/groups", "Groups"),
    ("/dead-letters", "Dead letters"),
    ("/timers", "Timers"),
    ("/tables", "Tables"),
    ("/brokers", "Brokers"),
    ("/accounts", "Accounts"),
    ("/audit", "Audit"),
)


class Visit:
    """One request of a user: the account's cluster, and the form of a POST.

    `stopping` is set when the server stops, which ends live pages.
    """

    def __init__(
        self,
        request: Request,
        pages: "Pages",
        cluster: Cluster,
        *,
        session_id: str,
        access_key: str | None,
        csrf: str,
        form: Mapping[str, list[str]],
        stopping: asyncio.Event,
    ) -> None:
        self.request = request
        self.cluster = cluster
        self.options: Options = pages.options
        self.access_key = access_key
        self._session_id = session_id
        self.csrf = csrf
        self.form = form
        self.stopping = stopping
        self._pages = pages

    @property
    def sees_bodies(self) -> bool:
        """Whether the user may read bodies of messages."""
        return not self.options.hide_bodies or self.access_key in self.options.bodies_for

    def check_sees_bodies(self) -> None:
        """Raises HTTPException if the user may not read bodies of messages."""
        if not self.sees_bodies:
            raise HTTPException(403, "This console does not show bodies of messages to you.")

    @property
    def audit(self) -> ConsoleAudit:
        """The log of changes that users made in this console."""
        return self._pages.audit

    @property
    def tables(self) -> LakeTables:
        """The tables of topics."""
        return self._pages.tables

    def query(self, name: str, default: str = "") -> str:
        """A parameter of the URL, without spaces around it."""
        return str(self.request.query_params.get(name, default)).strip()

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def field(self, name: str, default: str = "") -> str:
        """A field of the form, without spaces around it."""
        values = self.form.get(name)
        return values[0].strip() if values else default

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """An HTML answer from a template."""
        return HTMLResponse(self.text(template, **values), status)

    def text(self, template: str, **values: Any) -> str:
        """A template's text with these values."""
        return self._pages.text(
            template,
            {
                "path": self.request.url.path,
                "user": self.access_key,
                "csrf": self.csrf,
                "sees_bodies": self.sees_bodies,
                "notice": self._pages.notices.pop(self._session_id, None),
                **values,
            },
        )

    def done(self, action: str, target: str, where: str) -> Response:
        """Note a change in the audit log, and show the page `where` with a sentence about it."""
        self.audit.note(self, action, target)
        self._pages.notify(self._session_id, f"{action}: {target}")
        return redirect(where)


class Pages:
    """The compiled templates; start() reads all of them, so that the first page is quick."""

    def __init__(self, options: Options, audit: ConsoleAudit) -> None:
        self.options = options
        self.audit = audit
        self.tables = LakeTables(options)
        self.notices: dict[str, str] = {}
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            count=formats.count,
            rate=formats.rate,
            size=formats.size,
            duration=formats.duration,
            age=formats.age,
            minute=formats.minute,
            moment=formats.moment,
            part=formats.path_part,
            permission=formats.permission,
            plain=formats.plain,
            json=_json,
        )
        self._environment.globals.update(
            menu=MENU, version=__version__, namesrv=options.namesrv, url=url
        )

    def start(self) -> None:
        """Compile all templates."""
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def notify(self, session_id: str, text: str) -> None:
        """Show a sentence on the next page of a session."""
        while len(self.notices) >= NOTICES_MAX:
            del self.notices[next(iter(self.notices))]
        self.notices[session_id] = text

    def text(self, template: str, values: Mapping[str, Any]) -> str:
        """A template's text with these values."""
        return self._environment.get_template(template).render(values)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def url(path: str, **parameters: object) -> str:
    """A path with parameters; those that are None or empty are left out."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given, quote_via=quote)}" if given else path


def redirect(path: str, **parameters: object) -> Response:
    """The answer to a POST that succeeded: a GET of a page of this console."""
    return RedirectResponse(url(path, **parameters), status_code=303)


class Window(msgspec.Struct, frozen=True):
    """One page of a long list: `rows`, and the numbers of the pages around it."""

    rows: list[Any]
    number: int
    last: int
    total: int


def window(rows: Iterable[Any], number: str, length: int = 100) -> Window:
    """The page `number` (1 is the first) of some rows; a number out of range is moved into it."""
    rows = list(rows)
    last = max(1, -(-len(rows) // length))
    wanted = int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else 1
    page = min(max(wanted, 1), last)
    return Window(rows[(page - 1) * length : page * length], page, last, len(rows))
