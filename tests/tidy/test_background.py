"""Background work runs supervised, so that no error ends it without a word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "broker",
    "namesrv",
    "remoting",
    "congreve",
    "client",
    "console",
    "engine",
    "io_backends",
)
STARTS = {"create_task", "ensure_future"}
THREADS = {"Thread", "start_new_thread"}

#: Modules that start tasks, with what they start: another task waits for each of these.
AWAITED = {
    "broker/admin/consumers.py": "a question to each member",
    "broker/pull/archived_pulls.py": "a read that several pulls wait for",
    "remoting/loop/background.py": "the supervised runner",
    "remoting/loop/loop_thread.py": "what another thread waits for",
    "remoting/transport/client.py": "the connection that several requests wait for",
    "remoting/transport/connection.py": "the answer to a request, with its errors",
    "remoting/transport/tls_front.py": "the bytes of one connection",
    "client/consumer/concurrent.py": "listeners, and pauses, whose loops catch each error",
    "client/consumer/member.py": "the pulls of a queue, whose loop catches each error",
    "client/consumer/orderly.py": "listeners, whose loop catches each error",
    "client/producer/idempotence.py": "the claim of a key, which its send awaits",
    "client/producer/many.py": "sends of a group of tasks",
    "client/producer/producer.py": "sends that the program gets",
    "client/share/consumer.py": "the pops of a queue, whose loop catches each error",
    "client/share/receiving.py": "pops that a receive awaits",
    "client/share/settling.py": "acknowledgements, whose callers get the error",
    "client/share/workers.py": "listeners, whose loop catches each error",
    "client/transport/instance.py": "the end of a client, which stop() awaits",
    "client/transport/route.py": "a look-up that several sends wait for",
    "client/admin/resend.py": "a read that the resend awaits",
    "console/daemon/serve.py": "systemd's watchdog, which restarts the service without it",
    "console/demo.py": "a process that the demo awaits",
    "console/web/cluster.py": "reads that a page awaits",
    "console/web/jobs.py": "jobs, whose page shows the error",
    "console/web/refreshed.py": "reads that a page awaits",
    "console/web/topic_figures.py": "reads that a page awaits, and begins again",
    "console/web/views/tail.py": "pulls of one page",
    "console/web/serving/command.py": "systemd's watchdog, which restarts the service without it",
    "console/web/serving/gate.py": "the first reads, which pages repeat",
    "console/web/serving/handshakes.py": "handshakes, and their acceptance",
}
#: Modules that start threads, with what keeps an error from ending them.
OWN_THREADS = {
    "broker/metrics/http_server.py": "socketserver catches errors of each request",
    "broker/processes/side_process.py": "its loop catches what a start may raise",
    "broker/replication/ha_service.py": "Rounds",
    "console/lake.py": "it waits for the end of stdin",
    "console/web/serving/command.py": "it waits for the end of stdin",
    "engine/index/index.pyx": "its loop catches each error",
    "engine/rounds.py": "threads of a store: see below",
    "io_backends/fault/fault.pyx": "for tests",
    "io_backends/mapped/mapped.pyx": "without Python: errors are the backend's failure",
    "io_backends/measure.py": "for `congreve tune`, which waits for them",
    "io_backends/pool.pyx": "without Python: errors are the backend's failure",
    "io_backends/uring/zeros.pyx": "its errors are the next segment's",
    "remoting/lanes/lanes.py": "without Python",
    "remoting/loop/loop_thread.py": "asyncio's loop",
    "remoting/loop/watchdog.py": "it only looks at others",
    "remoting/tls/relay.py": "the bytes of one connection",
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


def test_each_thread_is_known() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py*"))
        if path.suffix in (".py", ".pyx")
        and any(re.search(rf"\b{name}[(),]", path.read_text()) for name in THREADS)
    }
    assert found == set(OWN_THREADS)


def test_each_thread_of_a_store_runs_rounds() -> None:
    modules = [path.read_text() for path in sorted((ROOT / "engine").rglob("*.py"))]
    threads = [text for text in modules if "(StoreThread):" in text]
    assert len(threads) == 5
    assert all("Rounds(" in text or "except Exception" in text for text in threads)


def test_the_check_finds_a_task() -> None:
    assert any(starts(ast.parse("asyncio.get_running_loop().create_task(work())")))
    assert any(starts(ast.parse("create_task(work())")))
    assert not any(starts(ast.parse("task.cancel()")))
