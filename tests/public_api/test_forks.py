"""Programs that fork after they have started a node or a client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

PROGRAM_LIMIT_S = 300
PYTHON = (sys.executable, "-W", "ignore::DeprecationWarning", "-c")


def run(program: str, *arguments: str) -> str:
    """What the program prints. It may leave no process that holds its output."""
    done = subprocess.run(
        [*PYTHON, textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=PROGRAM_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_child_leaves_the_node_of_its_parent(tmp_path: Path) -> None:
    printed = run(
        """
        import os, sys, congreve

        with congreve.serve(sys.argv[1]) as node:
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
                with node.producer("p") as producer:
                    producer.send(congreve.Message(topic="t", body=b"x"))
        if not child:
            os._exit(0)
        print("sent")
        """,
        str(tmp_path),
    )
    assert printed == "sent\n"


def test_a_child_keeps_neither_lock_nor_ports_of_a_dead_parent(tmp_path: Path) -> None:
    program = """
        import os, signal, sys, time, congreve

        with congreve.serve(sys.argv[1], namesrv_port=int(sys.argv[2]), metricsPort=0) as node:
            if os.fork() == 0:
                print(os.getpid(), node.broker.port, flush=True)
                os.close(1), os.close(2)
                time.sleep(600)
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        """
    command = [*PYTHON, textwrap.dedent(program)]
    first = subprocess.run(
        [*command, str(tmp_path), "0"], stdout=subprocess.PIPE, timeout=PROGRAM_LIMIT_S, check=False
    )
    child, port = first.stdout.split()
    try:
        again = run(
            """
            import sys, congreve

            with congreve.serve(sys.argv[1], listenPort=int(sys.argv[2])) as node:
                print(node.broker.port)
            """,
            str(tmp_path),
            port.decode(),
        )
        assert again.encode().split() == [port]
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_client_of_the_parent_is_refused_in_a_child(tmp_path: Path) -> None:
    printed = run(
        """
        import os, sys, congreve
        from congreve.client.errors import ClientStateError

        with congreve.serve(sys.argv[1]) as node:
            producer, unused = node.producer("p"), node.producer("q")
            with producer:
                producer.send(congreve.Message(topic="t", body=b"1"))
                child = os.fork()
                if not child:
                    new = congreve.Message(topic="new", body=b"2")
                    for call in (
                        lambda: producer.send(congreve.Message(topic="t", body=b"2")),
                        lambda: producer.send(new, timeout_s=2),
                        unused.start,
                    ):
                        try:
                            call()
                        except ClientStateError as error:
                            print("a client of its own" in str(error), flush=True)
                    producer.stop()
                    with node.producer("own") as own:
                        own.send(congreve.Message(topic="t", body=b"own"))
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
                ids = [producer.send(congreve.Message(topic="t", body=b"3")).queue_offset]
            print("stopped")
        """,
        str(tmp_path),
    )
    assert printed.split() == ["True"] * 3 + ["stopped"]


def test_a_child_leaves_what_its_parent_runs_on_a_loop(tmp_path: Path) -> None:
    """Messages that wait in a consumer of the parent are the parent's, too."""
    printed = run(
        """
        import asyncio, os, sys, congreve
        from contextlib import AsyncExitStack
        from congreve.client import ConsumeFrom, Message
        from congreve.client.errors import ClientStateError

        async def main():
            async with AsyncExitStack() as stack:
                node = await stack.enter_async_context(congreve.serve(sys.argv[1]))
                producer = await stack.enter_async_context(node.producer("p"))
                first = ConsumeFrom.FIRST_OFFSET
                consumer = node.consumer("c", {"t": "*"}, consume_from=first)
                queue = (await producer.send(Message(topic="t", body=b"1"))).queue
                await producer.send(Message(topic="t", body=b"2"), queue=queue)
                await stack.enter_async_context(consumer)
                messages = aiter(consumer)
                await anext(messages)
                child = os.fork()
                if not child:
                    try:
                        await anext(messages)
                    except ClientStateError as error:
                        print("a client of its own" in str(error), flush=True)
                    await stack.aclose()
                    os._exit(0)
                _, status = await asyncio.to_thread(os.waitpid, child, 0)
                print(status, (await anext(messages)).body)
                await producer.send(Message(topic="t", body=b"3"))
                print((await anext(messages)).body)

        asyncio.run(main())
        """,
        str(tmp_path),
    )
    assert printed == "True\n0 b'2'\nb'3'\n"


def test_an_interrupted_start_leaves_nothing_behind(tmp_path: Path) -> None:
    printed = run(
        """
        import os, signal, sys, threading, time, congreve

        begin = time.monotonic()
        with congreve.serve(sys.argv[1]):
            pass
        whole = time.monotonic() - begin
        for part in range(6):
            timer = threading.Timer(
                whole * (part + 0.5) / 8, os.kill, (os.getpid(), signal.SIGINT)
            )
            try:
                timer.start()
                with congreve.serve(sys.argv[1]):
                    time.sleep(60)
            except KeyboardInterrupt:
                pass
            with congreve.serve(sys.argv[1]) as node, node.producer("p") as producer:
                producer.send(congreve.Message(topic="t", body=b"x"))
        print("done")
        """,
        str(tmp_path),
    )
    assert printed == "done\n"


def test_a_child_opens_the_claims_of_its_parent_anew(tmp_path: Path) -> None:
    """The parent's lock is held while it forks, as by one of its threads."""
    printed = run(
        """
        import os, signal, sys
        from congreve.client.producer.idempotence import SqliteClaims

        claims = SqliteClaims(sys.argv[1])
        assert claims.claim("one")
        with claims._locked():
            child = os.fork()
            if not child:
                signal.alarm(60)
                os._exit(not (claims.claim("two") and not claims.claim("one")))
        assert os.waitpid(child, 0)[1] == 0
        print(claims.claim("two"), claims.claim("three"))
        """,
        str(tmp_path / "claims.db"),
    )
    assert printed == "False True\n"
