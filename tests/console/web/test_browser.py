"""The console's process in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as expected

import congreve
from congreve.client import ConsumerSettings, Message, SyncPushConsumer
from congreve.client.admin.sync import SyncAdminClient
from congreve.client.settings import ConsumeFrom
from tests.console.conftest import Daemon
from tests.console.conftest import congreve as command
from tests.console.web.browser import TIMEOUT_S, browser_log, chromium, keep, phone, wait

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


ONE_SAMPLE = """
window.labels = [];
const written = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
    window.labels.push(text);
    return written.call(this, text, ...at);
};
const sample = [[1600000000], [7], [3]];
window.fetch = async () => {
    setTimeout(() => { window.loaded = true; }, 200);
    window.labels = [];
    return { ok: true, json: async () => sample };
};
"""
"""The chart gets one sample; the page knows what it has written since."""


def test_the_chart_shows_minutes_with_one_sample_too(browser: Chrome, address: str) -> None:
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": ONE_SAMPLE})
    try:
        browser.get(address)
        wait(browser).until(lambda it: it.execute_script("return window.loaded"))
        labels = browser.execute_script("return window.labels")
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    times = [label for label in labels if re.fullmatch(r"\d\d:\d\d(:\d\d)?", label)]
    assert "12:25" in times and len(set(times)) > 3, times


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


@pytest.fixture(scope="module")
def letters(node: congreve.Node) -> str:
    """A group with two dead letters."""

    def refuse(_: object) -> None:
        raise ValueError("refused")

    with node.producer("writers") as producer:
        for number in range(2):
            body = b'{"number": %d, "text": "%s"}' % (number, b"long " * 30)
            producer.send(Message(topic="parcels", body=body, keys=f"parcel-{number}"))
    with (
        SyncAdminClient(node.address) as admin,
        SyncPushConsumer(
            node.address,
            group="refusing",
            topics={"parcels": "*"},
            listener=refuse,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            settings=ConsumerSettings(max_reconsume_times=0),
        ),
    ):
        deadline = time.monotonic() + TIMEOUT_S
        while sum(each.count for each in admin.dead_letters.groups()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    return "refusing"


@pytest.mark.parametrize("path", ["/messages?topic=parcels&by=newest", "/dead-letters/refusing"])
def test_keys_and_bodies_are_in_sight_on_a_phone(
    browser: Chrome, address: str, letters: str, path: str
) -> None:
    phone(browser)
    browser.get(address + path)
    cells = browser.find_elements(By.CSS_SELECTOR, "td.keys, td.preview")
    assert len(cells) == 4
    for cell in cells:
        assert cell.text
        assert cell.rect["x"] >= 0 and cell.rect["x"] + cell.rect["width"] <= 390
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("path", ["/topics", "/topics/parcels", "/groups", "/groups/refusing"])
def test_what_is_behind_is_in_sight_on_a_phone(
    browser: Chrome, address: str, letters: str, path: str
) -> None:
    def right_edges(browser: Chrome) -> list[float]:
        """Of the heads of such columns; none before the console has read the cluster again."""
        browser.get(address + path)
        heads = browser.find_elements(By.TAG_NAME, "th")
        rects = [head.rect for head in heads if "behind" in head.text.lower()]
        return [rect["x"] + rect["width"] for rect in rects]

    phone(browser)
    assert max(wait(browser).until(right_edges)) <= 390
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_question_before_a_resend_says_how_many_and_where_to(
    browser: Chrome, address: str, letters: str
) -> None:
    browser.get(f"{address}/dead-letters/{letters}")
    button = browser.find_element(By.XPATH, "//button[text()='Send again']")
    first = browser.find_element(By.CSS_SELECTOR, "input[name=letter]")
    assert button.location["y"] < first.location["y"]

    def question() -> str:
        button.click()
        asked = wait(browser).until(expected.alert_is_present())
        text = str(asked.text)
        asked.dismiss()
        return text

    button.click()
    wait(browser).until(lambda _: "choose the dead letters" in browser.page_source)
    browser.back()
    button = browser.find_element(By.XPATH, "//button[text()='Send again']")
    first = browser.find_element(By.CSS_SELECTOR, "input[name=letter]")
    first.click()
    assert question() == "Send 1 dead letter again, to the group refusing only?"
    browser.find_element(By.CSS_SELECTOR, "[data-all]").click()
    assert question() == "Send 2 dead letters again, to the group refusing only?"
    browser.find_element(By.CSS_SELECTOR, "select[name=which] option[value=all]").click()
    browser.find_element(By.CSS_SELECTOR, "select[name=to] option[value=topic]").click()
    assert question() == (
        "Send all 2 dead letters again, to their topics, where all groups get them?"
    )
    assert browser.current_url.endswith(f"/dead-letters/{letters}"), "nothing was sent"
    button.click()
    wait(browser).until(expected.alert_is_present()).accept()
    wait(browser).until(lambda _: "sent again" in browser.page_source)
    browser.get(f"{address}/dead-letters/{letters}")
    assert browser.find_elements(By.CSS_SELECTOR, "form[data-total='0']")


def test_an_empty_cluster_says_what_to_do(browser: Chrome, tmp_path: Path) -> None:
    with congreve.serve(tmp_path) as empty:
        daemon = Daemon("console", "-n", empty.address, "--port", "0")
        try:
            url = daemon.ready.split()[-1]
            for path in ("/", "/topics"):
                browser.get(url + path)
                assert f"congreve send -n '{empty.address}' -t orders" in browser.page_source
            assert not browser.find_elements(By.LINK_TEXT, "TBW102")
            browser.get(f"{url}/groups")
            assert "There is no group yet" in browser.page_source
            browser.get(f"{url}/groups?system=1")
            assert browser.find_elements(By.LINK_TEXT, "TOOLS_CONSUMER")
        finally:
            assert daemon.stop() == 0
