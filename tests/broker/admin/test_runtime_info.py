"""The table of brokerStatus is collected for many requests together."""

import asyncio

from congreve.broker.admin.runtime_info import RuntimeInfo
from congreve.remoting.messages.codes import RequestCode

from ..tool import config_of, running


async def test_simultaneous_requests_get_the_same_figures(tmp_path, monkeypatch):
    collected = []
    collect = RuntimeInfo._general

    def counted(self):
        collected.append(1)
        return collect(self)

    monkeypatch.setattr(RuntimeInfo, "_general", counted)
    async with running(config_of(tmp_path)) as (tool, _):
        asked = (tool.json(RequestCode.GET_BROKER_RUNTIME_INFO) for _ in range(50))
        tables = await asyncio.gather(*asked)
    assert {table["table"]["brokerVersion"] for table in tables} == {"401"}
    assert 0 < len(collected) < 25
