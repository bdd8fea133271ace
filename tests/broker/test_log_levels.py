"""Levels of log lines change over the network, and come back when the broker stops."""

import logging

import pytest

from congreve.broker.config import BrokerConfig
from congreve.broker.errors import ConfigError
from congreve.remoting.messages.codes import RequestCode

from .tool import config_of, running


def level(name: str) -> int:
    return logging.getLogger(name).level


async def test_log_levels_change_at_run_time(tmp_path):
    names = "congreve", "congreve.broker.pull"
    before = [level(name) for name in names]
    async with running(config_of(tmp_path, log_levels="info")) as (tool, _):
        assert level("congreve") == logging.INFO
        body = b"logLevels=congreve.broker.pull=DEBUG;ERROR"
        answer = await tool.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert answer.code == 0, answer.remark
        assert [level(name) for name in names] == [logging.ERROR, logging.DEBUG]
        answer = await tool.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"logLevels=LOUD")
        assert answer.code != 0 and "LOUD" in answer.remark
        await tool.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"logLevels=WARNING")
        assert [level(name) for name in names] == [logging.WARNING, before[1]]
    assert [level(name) for name in names] == before


@pytest.mark.parametrize("text", ["LOUD", "congreve.broker=", "asyncio=DEBUG", "congreves=INFO"])
def test_an_invalid_log_level_is_refused(text):
    with pytest.raises(ConfigError, match="logLevels"):
        BrokerConfig(log_levels=text)
