"""What clients read, commit and see while only a slave is there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click
from broker.replication.test_sync_master import follows
from click.testing import CliRunner
from harness.eventually import eventually
from harness.replication.pairs import running_pair

from congreve.client import ConsumeFrom, Message, Producer, PushConsumer
from congreve.client.admin import AdminClient
from congreve.console.cluster.cat import cat
from congreve.console.cluster.topic import topic

COUNT = 5


async def test_a_python_group_and_commands_read_the_slave_while_the_master_is_away(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as pair:
        namesrv, slave = pair.name_server.address, pair.slave
        await eventually(follows(pair))
        bodies = {b"%d" % number for number in range(COUNT)}
        async with Producer(namesrv, group="p", send_timeout_s=60) as producer:
            for body in sorted(bodies):
                await producer.send(Message(topic="T", body=body))
        end = pair.master.store.log.max_offset
        await eventually(lambda: slave.store.log.max_offset == end)
        await eventually(lambda: slave.managers.metadata.topics.get("T") is not None)
        await pair.master.stop()

        async with AdminClient(namesrv, timeout_s=60) as admin:

            async def is_registered() -> bool:
                (route,) = await admin.topic_route("T")
                return route.addresses == (slave.address,)

            await eventually(is_registered)
            stats = await admin.topic_stats("T")
            assert sum(row.max_offset for row in stats) == COUNT
        seen = set()
        async with PushConsumer(
            namesrv,
            group="g",
            topics={"T": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            timeout_s=60,
        ) as consumer:
            async for message in consumer:
                seen.add(message.body)
                if len(seen) == COUNT:
                    break
        assert seen == bodies
        offsets = slave.managers.metadata.offsets
        assert sum(offsets.query("g", "T", queue) or 0 for queue in range(4)) >= COUNT - 1

        async def printed(command: click.Command, *options: str) -> str:
            arguments = [*options, "-n", namesrv]
            done = await asyncio.to_thread(CliRunner().invoke, command, arguments)
            assert done.exit_code == 0, done.output
            return done.stdout

        lines = await printed(cat, "-t", "T", "-e")
        assert {line.encode() for line in lines.split()} == bodies
        rows = json.loads(await printed(topic, "stats", "T", "--output", "json"))
        assert sum(row["max"] for row in rows) == COUNT
