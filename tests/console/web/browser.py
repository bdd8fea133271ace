"""Debian's Chromium, driven by selenium."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

SCREENSHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
TIMEOUT_S = 60.0
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)


@contextmanager
def chromium() -> Iterator[Chrome]:
    """A browser with an empty profile; skips where it is not installed."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("not installed: chromium, chromedriver")
    options = ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory() as profile:
        for argument in (*OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        browser = Chrome(options=options, service=Service(driver))
        try:
            browser.set_page_load_timeout(TIMEOUT_S)
            yield browser
        finally:
            browser.quit()


def wait(browser: Chrome) -> WebDriverWait[Chrome]:
    """Wait for a condition, long enough for a busy machine."""
    return WebDriverWait(browser, TIMEOUT_S, poll_frequency=0.05)


def keep(browser: Chrome, name: str) -> None:
    """Write a screenshot, so that a developer can look at the page."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    assert browser.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


def phone(browser: Chrome, width: int = 390, height: int = 844) -> None:
    """Give the window the size of a phone."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def browser_log(browser: Chrome) -> list[str]:
    """What the browser's console has logged: policy violations, failed requests, errors."""
    return [entry["message"] for entry in browser.get_log("browser")]
