"""What protects the console: headers, forms, cookies, logins."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

import congreve
from congreve.console.web import views
from congreve.console.web.options import Options
from congreve.console.web.serving.gate import NAME_MAX
from congreve.console.web.serving.login_limit import FAILURES_MAX, WINDOW_S, LoginLimit
from congreve.console.web.serving.security import (
    CONTENT_SECURITY_POLICY,
    FORMS_MAX,
    SMALL_FORM_MAX,
    FormRoom,
)
from congreve.console.web.serving.sessions import COOKIE, IDLE_S, LIFETIME_S, SESSIONS_MAX, Sessions
from congreve.console.web.serving.site import Site, local_path
from tests.console.web.conftest import (
    ADMIN,
    ADMIN_SECRET,
    READER,
    READER_SECRET,
    Console,
    login,
    serve_console,
)


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Inline(HTMLParser):
    """Collects what a policy without inline forbids: handlers, styles, scripts with text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.found += [f"{tag} {name}" for name in names if name == "style" or name[:2] == "on"]
        self.found += [tag] if tag == "style" or (tag == "script" and "src" not in names) else []
        for name in ("href", "src", "action"):
            value = names.get(name) or "/"
            if not value.startswith(("/", "#", "{{")):
                self.found.append(f"{tag} {name}={value}")


def test_pages_have_no_inline_parts_and_no_parts_of_other_sites(templates: list[Path]) -> None:
    wrong = {}
    for template in templates:
        parser = Inline()
        parser.feed(template.read_text())
        if parser.found:
            wrong[template.name] = parser.found
    assert len(templates) > 15
    assert not wrong


def test_the_check_for_inline_parts_finds_them() -> None:
    parser = Inline()
    parser.feed('<p style="x" onclick="y"><script>1</script><a href="https://example.org">')
    assert parser.found == ["p style", "p onclick", "script", "a href=https://example.org"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/login", 200),
        ("/static/console.css", 200),
        ("/nothing", 404),
        ("/topics/unknown", 404),
    ],
)
def test_every_answer_has_the_headers(console: Console, path: str, status: int) -> None:
    answer = console.http.get(path)
    assert answer.status_code == status
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    wanted = "immutable" if path.startswith("/static") else "no-store"
    assert wanted in answer.headers["cache-control"]


def test_a_failure_has_the_headers_and_no_details(
    node: congreve.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(visit: object) -> None:
        raise RuntimeError("a detail")

    monkeypatch.setitem(views.PAGES, "/audit", fails)
    site = Site(Options(namesrv=node.address))
    client = TestClient(site.app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    with client as http:
        answer = http.get("/audit")
    assert answer.status_code == 500
    assert "a detail" not in answer.text
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY


@pytest.mark.parametrize(
    "host", ["example.org", "127.0.0.1.example.org", "", "[", "a@127.0.0.1:80"]
)
def test_other_host_names_are_refused(console: Console, host: str) -> None:
    answer = console.http.get("/", headers={"host": host})
    assert answer.status_code in (400, 421), answer.text
    assert "Overview" not in answer.text


def test_further_host_names_can_be_allowed(node: congreve.Node) -> None:
    for console in serve_console(Options(namesrv=node.address, hosts=("example.org",))):
        assert console.http.get("/", headers={"host": "example.org:8080"}).status_code == 200


# --- forms

ACTIONS = [re.sub(r"\{\w+\}", "x", path) for path in (*views.ACTIONS, "/logout", "/login")]


@pytest.mark.parametrize("path", ACTIONS)
def test_every_form_needs_the_token_of_its_session(console: Console, path: str) -> None:
    token = console.token("/topics")
    other = Sessions().csrf_token("x")
    for fields in ({}, {"csrf": ""}, {"csrf": other}, {"csrf": token + "0"}, {"csrf": "é"}):
        answer = console.http.post(path, data={"x": "1", **fields})
        assert answer.status_code == 403, path
        assert "out of date" in answer.text


def test_forms_of_other_sites_and_other_types_are_refused(console: Console) -> None:
    fields = {"csrf": console.token("/topics"), "topic": "stolen"}
    for headers in (
        {"origin": "http://example.org"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert console.http.post("/topics", data=fields, headers=headers).status_code == 403
    assert console.http.post("/topics", json=fields).status_code == 415
    assert "stolen" not in console.page("/topics")


def test_a_form_that_is_too_large_is_refused(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("congreve.console.web.serving.site.FORM_MAX", 1000)
    monkeypatch.setattr("congreve.console.web.serving.site.SMALL_FORM_MAX", 1000)
    answer = console.http.post("/topics", data={"csrf": "x" * 2000})
    assert answer.status_code == 413


def test_a_get_request_has_no_effect(console: Console) -> None:
    for path in set(ACTIONS) - {"/topics", "/accounts", "/login", "/dead-letters/x/edit/x/x/x"}:
        answer = console.http.get(path)
        assert answer.status_code in (400, 404, 405), path


# --- logins


def test_every_page_needs_a_login_where_the_broker_has_accounts(guarded: Console) -> None:
    for path in (re.sub(r"\{\w+\}", "x", path) for path in views.PAGES):
        answer = guarded.http.get(path, follow_redirects=False)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/login?next=")
    for path in ACTIONS:
        token = guarded.token("/login")
        answer = guarded.http.post(path, data={"csrf": token}, follow_redirects=False)
        assert answer.status_code in (303, 400), path
        assert answer.status_code == 400 or answer.headers["location"] == "/login"


def test_a_login_opens_all_pages_and_a_logout_closes_them(guarded: Console) -> None:
    assert "Overview" in login(guarded, ADMIN, ADMIN_SECRET)
    text = guarded.eventually("/topics", "As of")
    assert ADMIN in text
    guarded.post("/topics", topic="guarded", read_queues="1", write_queues="1", perm="6")
    for path in ("/topics", "/accounts", "/brokers", "/audit", "/"):
        page = guarded.page(path)
        assert ADMIN_SECRET not in page and READER_SECRET not in page
    assert "Log in" in guarded.post("/logout")
    assert guarded.http.get("/topics", follow_redirects=False).status_code == 303


def test_the_session_cookie_is_safe_and_new_after_a_login(guarded: Console) -> None:
    before = guarded.http.get("/login").headers["set-cookie"]
    token = guarded.token("/login")
    answer = guarded.http.post(
        "/login",
        data={"csrf": token, "access_key": ADMIN, "secret_key": ADMIN_SECRET},
        follow_redirects=False,
    )
    after = answer.headers["set-cookie"]
    for text in (before, after):
        assert "HttpOnly" in text and "SameSite=strict" in text and "Path=/" in text
    names = [re.match(rf"{COOKIE}=([^;]+);", text) for text in (before, after)]
    assert names[0] and names[1] and names[0][1] != names[1][1]


def test_the_cookie_is_secure_with_https(node: congreve.Node) -> None:
    for console in serve_console(Options(namesrv=node.address, secure=True)):
        assert "Secure" in console.http.get("/login").headers["set-cookie"]


def test_an_account_without_permission_gets_the_reason(guarded: Console) -> None:
    login(guarded, READER, READER_SECRET)
    text = guarded.page("/topics", 403)
    assert "AclException" in text and ADMIN not in text
    assert "does not report its figures" in guarded.page("/")


@pytest.mark.parametrize(
    ("key", "secret", "status"),
    [
        (ADMIN, "a-wrong-secret", 403),
        ("unknown-account", ADMIN_SECRET, 403),
        ("", "", 400),
        ("x" * (NAME_MAX + 1), "a-wrong-secret", 400),
    ],
)
def test_a_wrong_login_is_refused(guarded: Console, key: str, secret: str, status: int) -> None:
    login(guarded, key, secret, status)
    assert guarded.http.get("/topics", follow_redirects=False).status_code == 303


def test_logins_are_limited(guarded: Console) -> None:
    for _ in range(FAILURES_MAX):
        login(guarded, ADMIN, "a-wrong-secret", 403)
    assert "too many failed logins" in login(guarded, ADMIN, ADMIN_SECRET, 429)
    assert "too many failed logins" in login(guarded, READER, READER_SECRET, 429)


def test_a_console_for_other_machines_needs_a_broker_that_checks_signatures(
    node: congreve.Node, guarded_node: congreve.Node
) -> None:
    options = Options(namesrv=node.address, host="0.0.0.0", hosts=("127.0.0.1",))
    for console in serve_console(options):
        assert console.http.get("/", follow_redirects=False).status_code == 303
        assert "does not check signatures" in login(console, ADMIN, ADMIN_SECRET, 403)
    options = Options(namesrv=guarded_node.address, host="0.0.0.0", hosts=("127.0.0.1",))
    for console in serve_console(options):
        login(console, ADMIN, ADMIN_SECRET)


def test_accounts_are_created_changed_and_deleted(guarded: Console) -> None:
    login(guarded, ADMIN, ADMIN_SECRET)
    created = guarded.post(
        "/accounts", new="1", access_key="new-account", topic_perms="orders=PUB|SUB", secret_key=""
    )
    secret = re.search(r"Secret</dt><dd class=\"mono\">([^<]+)<", created)
    assert secret is not None and len(secret[1]) > 20
    text = guarded.page("/accounts")
    assert "new-account" in text and "orders=PUB|SUB" in text and secret[1] not in text
    guarded.post("/accounts", access_key="new-account", group_perms="billing=SUB", secret_key="")
    assert "billing=SUB" in guarded.page("/accounts")
    guarded.post("/accounts", 400, access_key="short", secret_key="")
    guarded.post("/accounts", 400, access_key="new-account", topic_perms="orders")
    guarded.post("/accounts/delete", 400, access_key="new-account", confirm="other")
    guarded.post("/accounts/delete", access_key="new-account", confirm="new-account")
    assert "deleted account" in guarded.page("/audit")
    assert "new-account" not in guarded.page("/accounts")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/topics?q=1", "/topics?q=1"),
        ("//example.org", "/"),
        ("/\\example.org", "/"),
        ("https://example.org", "/"),
        ("/a\nb", "/"),
        ("", "/"),
    ],
)
def test_a_login_leads_only_to_pages_of_the_console(text: str, path: str) -> None:
    assert local_path(text) == path


# --- the parts


def test_sessions_end_when_they_are_idle_or_old() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    session = sessions.begin("key", "secret")
    assert "secret" not in repr(session)
    for _ in range(int(LIFETIME_S / IDLE_S) + 1):
        assert sessions.find(session.id) is session
        clock.now += IDLE_S - 1
    assert sessions.find(session.id) is None
    idle = sessions.begin("key", "secret")
    clock.now += IDLE_S + 1
    assert sessions.find(idle.id) is None
    assert sessions.accounts() == set()


def test_the_number_of_sessions_is_bounded() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    first = sessions.begin("key", "secret")
    for _ in range(SESSIONS_MAX):
        clock.now += 1
        last = sessions.begin("key", "secret")
    assert sessions.find(first.id) is None
    assert sessions.find(last.id) is last


def test_the_login_limit_counts_each_name_for_a_minute() -> None:
    clock = Clock()
    limit = LoginLimit(clock)
    for _ in range(FAILURES_MAX):
        assert limit.wait_s("a", "b") == 0
        limit.failed("a")
    assert limit.wait_s("a", "b") == WINDOW_S
    assert limit.wait_s("b") == 0
    clock.now += WINDOW_S + 1
    assert limit.wait_s("a") == 0
    limit.failed("b")
    limit.succeeded("b")
    for _ in range(FAILURES_MAX - 1):
        limit.failed("b")
    assert limit.wait_s("b") == 0


def test_a_form_before_a_login_is_small(guarded_node: congreve.Node) -> None:
    for console in serve_console(Options(namesrv=guarded_node.address)):
        console.page("/login")  # gives the browser a session
        for path in ("/login", "/topics"):
            answer = console.http.post(path, data={"csrf": "x" * (SMALL_FORM_MAX + 1)})
            assert answer.status_code == 413


def test_forms_that_are_being_read_share_a_limit() -> None:
    room = FormRoom()
    room.grow(0, SMALL_FORM_MAX)  # a small form always has room
    assert room.held == 0
    room.grow(0, FORMS_MAX)
    with pytest.raises(HTTPException, match="503"):
        room.grow(SMALL_FORM_MAX, 2 * SMALL_FORM_MAX + 1)
    room.grow(2 * SMALL_FORM_MAX + 1, 0)
    room.grow(FORMS_MAX, 0)
    assert room.held == 0


def test_a_page_of_another_site_loads_no_page_unseen(console: Console) -> None:
    other = {"sec-fetch-site": "cross-site"}
    unseen = other | {"sec-fetch-dest": "image"}
    assert console.http.get("/topics", headers=unseen).status_code == 403
    shown = other | {"sec-fetch-dest": "document"}  # a link
    assert console.http.get("/topics", headers=shown).status_code == 200
