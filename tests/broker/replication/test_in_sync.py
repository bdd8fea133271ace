"""Which slaves of a classic master are in sync, as administrators see it."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from pathlib import Path
from typing import Any

from broker.replication.test_sync_master import follows
from click.testing import CliRunner
from harness.eventually import eventually
from harness.replication.pairs import running_pair

from congreve.broker.ha_frames import REPORT
from congreve.client.admin import AdminClient
from congreve.client.admin.reports import BrokerReports
from congreve.console.replication.replicas import replicas
from congreve.records.message.message import Record


async def test_a_slave_that_is_far_behind_is_not_in_sync(tmp_path: Path) -> None:
    settings = {
        "haSlaveFallbehindMax": "5000",
        "haHousekeepingInterval": "600000",
        "metricsPort": "0",
    }
    async with running_pair(tmp_path, master=settings) as pair:
        namesrv, store = pair.name_server.address, pair.master.store
        rows: dict[str, dict[str, Any]] = {}

        async def are_shown(*others: str) -> bool:
            """Whether the command shows these; a busy machine may not answer it in time."""
            command = ["-n", namesrv, "--output", "json"]
            done = await asyncio.to_thread(CliRunner().invoke, replicas, command)
            if done.exit_code == 0:
                rows.update({row["other_end"]: row for row in json.loads(done.stdout)})
            return rows.keys() >= set(others)

        await eventually(follows(pair))
        (quick,) = (each.address for each in pair.master.replication.state().slaves)
        host, _, port = pair.master.replication.ha_address.rpartition(":")
        with socket.create_connection((host, int(port))) as behind:
            slow = "{}:{}".format(*behind.getsockname())
            behind.sendall(REPORT.pack(0))
            await eventually(lambda: len(pair.master.replication.state().slaves) == 2)
            for _ in range(10):
                store.put(Record(topic="T", body=bytes(1000)))
            end = store.log.max_offset

            def is_confirmed() -> bool:
                return pair.master.replication.state().slaves[0].lag_bytes == 0

            await eventually(is_confirmed)
            master = pair.master.replication.ha_address
            await eventually(lambda: are_shown(quick, slow, master))
            assert (rows[quick]["in_sync"], rows[quick]["lag_bytes"]) == (True, 0)
            assert (rows[slow]["in_sync"], rows[slow]["lag_bytes"]) == (False, end)
            assert (rows[slow]["role"], rows[master]["role"]) == ("master", "slave")
            async with AdminClient(namesrv, timeout_s=60) as admin:
                reports = BrokerReports(admin, pair.master.address)

                async def is_reported() -> bool:  # the broker keeps its figures for 0.1 s
                    return (await reports.runtime())["haInSync"] == quick

                await eventually(is_reported)
            url = f"http://127.0.0.1:{pair.master.config.metrics_port}/metrics"
            page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
            for address, value in ((quick, 1), (slow, 0)):
                assert f'congreve_replication_in_sync{{slave="{address}"}} {value}' in page
