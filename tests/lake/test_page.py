"""What docs/lake.md shows of bodies and queries runs as written, but for its folders."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import congreve
from congreve.client import Message

PAGE = (Path(__file__).parents[2] / "docs" / "lake.md").read_text()
BODIES = (
    b'{"order": 7, "amount": "12.50", "status": "paid"}',
    b'{"order": 8, "amount": 2.5, "status": "paid"}',
    b"no JSON",
)


def blocks(language: str, begins: str = "") -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [text for text in found if begins in text]


def test_the_examples_of_bodies_and_queries_run(tmp_path: Path) -> None:
    with congreve.serve(tmp_path / "data") as node, node.producer("shop") as producer:
        for body in BODIES:
            producer.send(Message(topic="orders", body=body, tags="new"))
    (schema,) = blocks("json")
    (command,) = blocks("sh", "--body")
    (tmp_path / "order.avsc").write_text(schema)

    def here(text: str) -> str:
        return text.replace("/srv/lake", f"{tmp_path}/lake").replace("/etc/congreve", f"{tmp_path}")

    words = shlex.split(here(command).replace("lake follow", "lake export"))
    subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, check=True, capture_output=True)

    names: dict[str, Any] = {}
    for program in blocks("python"):
        exec(compile(here(program), "docs/lake.md", "exec"), names)
    assert names["dead"].to_arrow()["body"].to_pylist() == [BODIES[2]]
    (query,) = blocks("sql")
    table = names["catalog"].load_table("rocketmq.orders").scan().to_duckdb("orders")
    assert [(status, float(total)) for status, total in table.execute(query).fetchall()] == [
        ("paid", 15.0)
    ]
