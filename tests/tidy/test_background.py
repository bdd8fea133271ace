"""Background work of servers runs supervised, so that no error ends it without a word."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("broker", "namesrv", "remoting", "congreve")
STARTS = {"create_task", "ensure_future"}

#: Modules that start tasks, with what they start: another task waits for each of these.
AWAITED = {
    "broker/admin/consumers.py": "a question to each member",
    "broker/pull/archived_pulls.py": "a read that several pulls wait for",
    "remoting/loop/background.py": "the supervised runner",
    "remoting/loop/loop_thread.py": "what another thread waits for",
    "remoting/transport/client.py": "the connection that several requests wait for",
    "remoting/transport/connection.py": "the answer to a request, with its errors",
    "remoting/transport/tls_front.py": "the bytes of one connection",
}


def starts(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in STARTS:
                yield node


def test_only_the_supervised_runner_starts_background_tasks() -> None:
    modules = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {
        str(path.relative_to(ROOT)) for path in modules if any(starts(ast.parse(path.read_text())))
    }
    assert found == set(AWAITED), "use BackgroundTask or BackgroundJobs"


def test_the_check_finds_a_task() -> None:
    assert any(starts(ast.parse("asyncio.get_running_loop().create_task(work())")))
    assert any(starts(ast.parse("create_task(work())")))
    assert not any(starts(ast.parse("task.cancel()")))
