"""Requests to a broker's metrics port."""

import asyncio
import urllib.error
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def ask(port: int, path: str, accept: str = "") -> tuple[int, str]:
    """Status and body."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def get(port: int, path: str, accept: str = "") -> tuple[int, str]:
    return await asyncio.to_thread(ask, port, path, accept)


async def scrape(port: int, *, open_metrics: bool = False) -> Series:
    """All series of /metrics, read by prometheus_client's own parser; none may come twice."""
    accept = OPEN_METRICS if open_metrics else ""
    status, text = await get(port, "/metrics", accept)
    assert status == 200, text
    return parsed(text, open_metrics=open_metrics)


def parsed(text: str, *, open_metrics: bool = False) -> Series:
    """All series of a text."""
    found: Series = {}
    for family in (parse_open if open_metrics else parse_plain)(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def of(series: Series, name: str, **labels: str) -> float:
    """The one series of this name with these labels, whatever others it has."""
    wanted = set(labels.items())
    matching = [v for (n, have), v in series.items() if n == name and wanted <= have]
    assert len(matching) == 1, (name, labels, matching)
    return matching[0]
