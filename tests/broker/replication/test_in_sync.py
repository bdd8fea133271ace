"""Which slaves of a classic master are in sync, as administrators see it."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from pathlib import Path
from typing import Any

from broker.replication.test_sync_master import follows, have_equal_logs
from click.testing import CliRunner
from harness.eventually import eventually
from harness.pairs import running_pair

from congreve.broker.replication.frames import REPORT
from congreve.client.admin import AdminClient
from congreve.client.admin.reports import BrokerReports
from congreve.console.replication.replicas import replicas
from congreve.records.message.message import Record


async def test_a_slave_that_is_far_behind_is_not_in_sync(tmp_path: Path) -> None:
    settings = {"haSlaveFallbehindMax": "5000", "metricsPort": "0"}
    async with running_pair(tmp_path, master=settings) as pair:
        namesrv, store = pair.name_server.address, pair.master.store

        async def shown() -> list[dict[str, Any]]:
            done = await asyncio.to_thread(
                CliRunner().invoke, replicas, ["-n", namesrv, "--output", "json"]
            )
            assert done.exit_code == 0, done.output
            rows: list[dict[str, Any]] = json.loads(done.stdout)
            return rows

        await eventually(follows(pair))
        host, _, port = pair.master.replication.ha_address.rpartition(":")
        with socket.create_connection((host, int(port))) as behind:
            behind.sendall(REPORT.pack(0))
            await eventually(lambda: len(pair.master.replication.state().slaves) == 2)
            for _ in range(10):
                store.put(Record(topic="T", body=bytes(1000)))
            await eventually(have_equal_logs(pair))
            end = store.log.max_offset
            slow = "{}:{}".format(*behind.getsockname())
            addresses = [each.address for each in pair.master.replication.state().slaves]
            (quick,) = (each for each in addresses if each != slow)

            async def is_confirmed() -> bool:
                rows = {row["other end"]: row for row in await shown()}
                return rows[quick]["lag bytes"] == 0

            await eventually(is_confirmed)
            rows = {row["other end"]: row for row in await shown()}
            assert rows[quick]["in sync"] and not rows[slow]["in sync"]
            assert rows[slow]["lag bytes"] == end
            assert rows[slow]["role"] == "master"
            assert rows[pair.master.replication.ha_address]["role"] == "slave"
            async with AdminClient(namesrv) as admin:
                figures = await BrokerReports(admin, pair.master.address).runtime()
            assert figures["haInSync"] == quick
            url = f"http://127.0.0.1:{pair.master.config.metrics_port}/metrics"
            page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
            for address, value in ((quick, 1), (slow, 0)):
                assert f'congreve_replication_in_sync{{slave="{address}"}} {value}' in page
