"""A retry topic that exists follows the retryQueueNums of its group."""

from pathlib import Path

import pytest

from ..tool import config_of, running


async def test_a_retry_topic_gets_the_queues_that_its_group_gets(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as (tool, broker):
        await tool.heart_beat("G", "T")
        topics = broker.managers.metadata.topics
        assert topics.table["%RETRY%G"].read_queue_nums == 1
        assert (await tool.ask(200, body=b'{"groupName":"G","retryQueueNums":4}')).code == 0
        assert topics.table["%RETRY%G"].read_queue_nums == 4
        assert topics.is_saved("%RETRY%G")


async def test_a_heartbeat_makes_retries_readable_that_earlier_versions_hid(
    tmp_path: Path,
) -> None:
    async with running(config_of(tmp_path)) as (tool, broker):
        topics = broker.managers.metadata.topics
        assert (await tool.ask(200, body=b'{"groupName":"G","retryQueueNums":4}')).code == 0
        topics.create_internal("%RETRY%G", 1)
        assert (await tool.heart_beat("G", "T")).code == 0
        assert topics.table["%RETRY%G"].read_queue_nums == 4


@pytest.mark.parametrize("length", [120, 121, 255])
async def test_a_group_whose_name_leaves_no_retry_topic_consumes_without_one(
    tmp_path: Path, length: int
) -> None:
    group = "g" * length
    async with running(config_of(tmp_path)) as (tool, broker):
        assert (await tool.heart_beat(group, "T")).code == 0
        assert (await tool.ask(200, body=b'{"groupName":"%s"}' % group.encode())).code == 0
        assert ("%RETRY%" + group in broker.managers.metadata.topics.table) == (length == 120)
