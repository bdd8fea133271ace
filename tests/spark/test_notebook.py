"""docs/flights.ipynb runs from its first cell to its last, and draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Cluster

NOTEBOOK = Path(__file__).parents[2] / "docs" / "flights.ipynb"
FLIGHTS = 240


def test_the_notebook_runs_and_draws(
    spark: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    cluster.topic("flights")
    bodies = [
        json.dumps({"time_hour": f"2013-01-{1 + n % 9:02d}T{n % 24:02d}:00:00Z"}).encode()
        for n in range(FLIGHTS)
    ]
    cluster.send_bodies("flights", bodies)
    monkeypatch.setenv("FLIGHTS_STORE", str(cluster.root / "store"))
    monkeypatch.setenv("NAMESRV_ADDR", cluster.address)
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    assert len(pyplot.get_fignums()) == 4
    pyplot.close("all")
    assert sum(names["by_tag"].values()) == FLIGHTS
    assert sum(row["count"] for row in names["lag"]) == FLIGHTS // 2
    assert sum(row["legs"] * row["sessions"] for row in names["sessions"]) == FLIGHTS
    assert len(names["percentiles"]) == 4
