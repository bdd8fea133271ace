"""The process that copies topics into tables: its command line, refused settings."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from congreve.broker.config import BrokerConfig
from congreve.broker.config_parts import ElectionConfig, LakeConfig
from congreve.broker.errors import ConfigError
from congreve.broker.processes.lake_process import follow_command, lake_process


def test_the_command_has_the_settings(tmp_path: Path) -> None:
    config = BrokerConfig(
        broker_name="b",
        lake=LakeConfig(
            topics="orders; bills",
            warehouse="/lake",
            properties="s3.endpoint=http://127.0.0.1:1;a=b",
            lag_millis=10_000,
            bodies="bills=json:/etc/bill=1.avsc",
            drop_bodies=True,
        ),
    )
    config.store.root_dir = str(tmp_path)
    command = follow_command(config)
    options = list(pairwise(command))
    assert ("--topic", "orders") in options and ("--topic", "bills") in options
    assert ("--property", "a=b") in options and ("--lag", "3.333") in options
    assert ("--broker-name", "b") in options and "--catalog" not in command
    assert ("--body", "bills=json:/etc/bill=1.avsc") in options and "--drop-bodies" in command


def test_checkpoints_are_written_as_often_as_the_lag_needs() -> None:
    pytest.importorskip("pyiceberg")
    config = BrokerConfig(lake=LakeConfig(topics="T", warehouse="/lake", lag_millis=10_000))
    assert lake_process(config) is not None
    assert config.store.flush_consume_queue_thorough_interval == 3_333
    without = BrokerConfig()
    assert lake_process(without) is None
    assert without.store.flush_consume_queue_thorough_interval == 60_000


@pytest.mark.parametrize(
    ("mode", "role", "flags"),
    [
        ("classic", "SYNC_MASTER", set()),
        ("classic", "SLAVE", set()),
        ("etcd", "SYNC_MASTER", {"--confirmed-only"}),
        ("etcd", "SLAVE", {"--note-only"}),
    ],
)
def test_only_the_master_of_an_elected_group_exports(mode: str, role: str, flags: set[str]) -> None:
    config = BrokerConfig(
        lake=LakeConfig(topics="T", warehouse="/lake"),
        election=ElectionConfig(ha_mode=mode),
        broker_role=role,
    )
    assert {"--confirmed-only", "--note-only"} & {*follow_command(config)} == flags


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"topics": "T"}, "needs lakeWarehouse"),
        ({"partition": "week"}, "day or hour"),
        (
            {"topics": "T", "warehouse": "/lake", "retention": True, "drop_bodies": True},
            "lakeDropBodies=false",
        ),
    ],
)
def test_contradicting_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        LakeConfig(**settings)


@pytest.mark.parametrize("bodies", ["json:/a.avsc", "U=json:/a.avsc", "T=json"])
def test_bodies_are_those_of_a_topic_of_lake_topics(bodies: str) -> None:
    config = BrokerConfig(lake=LakeConfig(topics="T", warehouse="/lake", bodies=bodies))
    with pytest.raises(ConfigError, match="TOPIC=FORMAT:FILE"):
        lake_process(config)
