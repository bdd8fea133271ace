"""Makes the pictures of docs/console.md: `python -m tests.console.web.pictures FOLDER`.

All pages of a cluster with nothing in it, and of one with a thousand topics, on a screen and on a
phone, light and dark. Four of the phone are one picture, `phone.png`; `console.png` is the overview
while messages come and a group is behind.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from selenium.webdriver import Chrome

import congreve
from congreve.client import ConsumerSettings, Message, SyncPushConsumer
from congreve.client.admin.sync import SyncAdminClient
from congreve.client.settings import ConsumeFrom
from tests.console.conftest import Daemon
from tests.console.web.browser import chromium, phone

TOPICS = 1_000
EMPTY = {"overview": "/", "topics": "/topics", "groups": "/groups"}
FULL = {
    "topics": "/topics",
    "messages": "/messages?topic=orders&by=newest",
    "dead-letters": "/dead-letters/billing",
    "overview": "/",
}
TOGETHER = ("empty-overview", "full-topics", "full-messages", "full-dead-letters")


def pictures(browser: Chrome, namesrv: str, pages: dict[str, str], name: str, to: Path) -> None:
    """All pages of a cluster, in four forms each."""
    console = Daemon("console", "-n", namesrv, "--port", "0")
    url = console.ready.split()[-1]
    try:
        for form in ("screen", "phone"):
            if form == "phone":
                phone(browser)
            for colours in ("light", "dark"):
                feature = {"name": "prefers-color-scheme", "value": colours}
                browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
                for page, path in pages.items():
                    browser.get(url + path)
                    time.sleep(1)  # the chart, and figures that a page does not wait for
                    browser.save_screenshot(str(to / f"{name}-{page}-{form}-{colours}.png"))
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    finally:
        console.stop()


def fill(node: congreve.Node) -> None:
    """A thousand topics; one of them has messages, and a group that refuses them."""
    with node.producer("shop") as producer, SyncAdminClient(node.address) as admin:
        for number in range(TOPICS - 1):
            admin.create_topic(f"shop-{number:03}", queues=2)
        for number in range(60):
            body = b'{"order": %d, "customer": "c-%d", "total": "%d.90", "items": ["book", "pen"]}'
            producer.send(
                Message(
                    topic="orders",
                    body=body % (1000 + number, number % 7, number * 3),
                    tags="new" if number % 3 else "paid",
                    keys=f"order-{1000 + number} c-{number % 7}",
                )
            )
        with SyncPushConsumer(
            node.address,
            group="billing",
            topics={"orders": "*"},
            listener=refuse,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            settings=ConsumerSettings(max_reconsume_times=0),
        ):
            while sum(each.count for each in admin.dead_letters.groups()) < 60:
                time.sleep(0.1)


def while_messages_come(node: congreve.Node, browser: Chrome, to: Path) -> None:
    """The overview after a minute in which some hundred messages a second came."""
    console = Daemon("console", "-n", node.address, "--port", "0")
    screen = {"width": 1280, "height": 757, "deviceScaleFactor": 1, "mobile": False}
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        browser.get(console.ready.split()[-1])
        with node.producer("shop") as producer:
            for number in range(6000):
                producer.send(Message(topic="orders", body=b"x"))
                time.sleep(0.005 + 0.005 * (number // 500 % 3))
        browser.save_screenshot(str(to))
    finally:
        console.stop()
    Image.open(to).convert("RGB").quantize(256).save(to, optimize=True)


def refuse(_: object) -> None:
    """Make each message a dead letter."""
    raise ValueError("refused")


def join(names: list[Path], to: Path) -> None:
    """One picture of several, with few colours: a small file."""
    images = [Image.open(name).convert("RGB") for name in names]
    whole = Image.new("RGB", (sum(each.width + 12 for each in images), images[0].height), "white")
    at = 0
    for each in images:
        whole.paste(each, (at, 0))
        at += each.width + 12
    whole.quantize(48).save(to, optimize=True)


def main(to: Path) -> None:
    """Write all pictures below the folder."""
    to.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        congreve.serve(Path(data) / "empty") as empty,
        congreve.serve(Path(data) / "full") as full,
        chromium() as browser,
    ):
        pictures(browser, empty.address, EMPTY, "empty", to)
        fill(full)
        pictures(browser, full.address, FULL, "full", to)
        while_messages_come(full, browser, to / "console.png")
    join([to / f"{name}-phone-dark.png" for name in TOGETHER], to / "phone.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
