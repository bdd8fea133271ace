"""The console's process in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as expected

import congreve
from congreve.client import Message
from tests.console.conftest import Daemon
from tests.console.conftest import congreve as command
from tests.console.web.browser import browser_log, chromium, keep, phone, wait

pytestmark = pytest.mark.slow

PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "messages": "/messages?topic=orders",
    "markup": "/messages?topic=markup",
    "groups": "/groups",
    "dead-letters": "/dead-letters",
    "timers": "/timers",
    "tables": "/tables",
    "brokers": "/brokers",
    "accounts": "/accounts",
    "audit": "/audit",
    "traces": "/traces",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store of a stopped broker, and the tables of its topic."""
    from tests.lake import bodies, stores  # these import the libraries of the tables: a long time

    root = tmp_path_factory.mktemp("tables")
    store = stores.write(root / "store", 20)
    options = ("--store", str(store), "--warehouse", str(root / "lake"), "--topic", stores.TOPIC)
    schema = bodies.schema_file(root)
    done = command("lake", "export", *options, "--body", f"json:{schema}")
    assert done.returncode == 0, done.stderr
    with stores.open_writer(store) as writer:
        stores.put(writer, 20, 7)
    return root


@pytest.fixture(scope="module")
def address(node: congreve.Node, lake: Path) -> Iterator[str]:
    """The console as a user starts it."""
    folders = ("--lake", str(lake / "lake"), "--store", str(lake / "store"))
    daemon = Daemon("console", "-n", node.address, "--port", "0", *folders)
    found = re.fullmatch(r"ready: console (http://127\.0\.0\.1:\d+)", daemon.ready)
    assert found is not None, daemon.ready
    yield found[1]
    assert daemon.stop() == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """One browser for all tests of this module."""
    with chromium() as it:
        yield it


def test_every_page_works_on_large_and_small_screens(browser: Chrome, address: str) -> None:
    """No page breaks the policy, runs markup of clients, or is wider than a phone."""
    for width in ("screen", "phone"):
        if width == "phone":
            phone(browser)
        for name, path in PAGES.items():
            browser.get(address + path)
            assert browser.find_element(By.TAG_NAME, "h1").text
            keep(browser, f"{name}-{width}")
            shown = browser.execute_script(
                "return [document.documentElement.scrollWidth, window.innerWidth]"
            )
            assert shown[0] <= shown[1], (name, shown)
            hidden = browser.execute_script(
                "return [...document.querySelectorAll('nav [aria-current]')].filter(it => {"
                " const at = it.getBoundingClientRect();"
                " return at.left < 0 || at.right > window.innerWidth; }).length"
            )
            assert not hidden, f"{name}: its place in the menu is out of sight"
            assert not browser_log(browser), name
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_table_is_shown_with_its_lag_and_dead_letters(browser: Chrome, address: str) -> None:
    from tests.lake import stores

    browser.get(f"{address}/tables")
    (row,) = browser.find_elements(By.CSS_SELECTOR, "tbody tr")
    cells = [cell.text for cell in row.find_elements(By.TAG_NAME, "td")]
    assert cells[:4] == [stores.TOPIC, "0", "20", "7"]
    assert re.fullmatch(r"\d+ d", cells[4]), "the age of the oldest message that is missing"
    assert not browser_log(browser)


def test_the_keyboard_reaches_each_action_of_each_page(browser: Chrome, address: str) -> None:
    """Elements are focused in the order in which they are shown, and none is left out."""
    for name, path in PAGES.items():
        browser.get(address + path)
        browser.execute_script("document.querySelectorAll('details').forEach(it => it.open = true)")
        missed = browser.execute_script(
            """
            const all = [...document.querySelectorAll(
                'a[href], button, input:not([type=hidden]), select, textarea, summary')];
            return all.filter(it => {
                if (it.disabled) return false;
                it.focus();
                return document.activeElement !== it || it.tabIndex !== 0;
            }).map(it => it.outerHTML);
            """
        )
        assert not missed, (name, missed)
    browser.get(f"{address}/groups")
    actions = browser.find_elements(By.CSS_SELECTOR, "a[href], button, input:not([type=hidden])")
    reached = []
    for _ in actions:
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(browser.switch_to.active_element)
    assert reached == actions


def test_the_overview_follows_the_broker(
    browser: Chrome, address: str, node: congreve.Node
) -> None:
    browser.get(address)
    wait(browser).until(lambda it: it.find_elements(By.CSS_SELECTOR, ".chart canvas"))
    browser.execute_script("window.stayed = true")
    with node.producer("writers") as producer:

        def shows_messages(it: Chrome) -> bool:
            producer.send(Message(topic="orders", body=b"counted"))
            # One call: the element is replaced by the next event.
            text = it.execute_script("return document.querySelector('.figure b').textContent")
            return not text.startswith("0 ")

        wait(browser).until(shows_messages)
    assert browser.execute_script("return window.stayed"), "the page was loaded again"
    keep(browser, "overview-live")
    assert not browser_log(browser)


def test_the_live_tail_shows_new_messages(
    browser: Chrome, address: str, node: congreve.Node
) -> None:
    browser.get(f"{address}/messages/tail?topic=orders&tags=tail")
    with node.producer("writers") as producer:

        def has_row(it: Chrome) -> bool:
            producer.send(Message(topic="orders", body=b"<b>live</b>", tags="tail"))
            producer.send(Message(topic="orders", body=b"other", tags="other"))
            return bool(it.find_elements(By.CSS_SELECTOR, "#rows tr"))

        wait(browser).until(has_row)
    bodies = {each.text for each in browser.find_elements(By.CSS_SELECTOR, "#rows .preview")}
    assert bodies == {"<b>live</b>"}
    keep(browser, "tail")
    assert not browser_log(browser)


def test_the_console_works_with_the_keyboard_alone(browser: Chrome, address: str) -> None:
    browser.get(address)
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "To the content"
    for _ in range(30):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        if browser.switch_to.active_element.text == "Topics":
            break
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait(browser).until(expected.url_to_be(f"{address}/topics"))
    field = browser.find_element(By.NAME, "q")
    field.send_keys("order", Keys.ENTER)
    wait(browser).until(expected.url_contains("q=order"))
    assert browser.find_elements(By.LINK_TEXT, "orders")
    assert not browser.find_elements(By.LINK_TEXT, "markup")


def test_offsets_are_reset_after_a_preview(
    browser: Chrome, address: str, node: congreve.Node
) -> None:
    with node.consumer("by-browser", topics={"orders": "*"}, auto_commit=True) as consumer:
        assert consumer.poll(30)
    page = f"{address}/groups/by-browser"

    def has_form(it: Chrome) -> bool:
        it.get(page)
        return bool(it.find_elements(By.CSS_SELECTOR, "form[action$=preview]"))

    wait(browser).until(has_form)
    browser_log(browser)  # those of the time before the group was there
    browser.find_element(By.XPATH, "//summary[text()='Reset or skip']").click()
    keep(browser, "group")
    browser.find_element(By.CSS_SELECTOR, "select[name=to] option[value=first]").click()
    browser.find_element(By.XPATH, "//button[text()='Preview']").click()
    wait(browser).until(expected.url_contains("preview"))
    keep(browser, "reset")
    browser.find_element(By.XPATH, "//button[text()='Reset the offsets']").click()
    done = wait(browser).until(
        expected.presence_of_element_located((By.CSS_SELECTOR, ".note.done"))
    )
    assert "reset offsets: by-browser" in done.text
    assert not browser_log(browser)
